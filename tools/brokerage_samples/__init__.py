"""
A broker's customers, accounts and trades in three loads, in the shape of TPC-DI, the warehouses' benchmark.

    python -m tools.brokerage_samples --out data/samples/brokerage

A load of half a year as actions in XML, each with what it changed and nothing else, and two loads of a day
each as rows that were inserted or updated.  As in the benchmark a day is the finest time that a customer or
an account has, and an audit counts what was put in.  Unlike it, a row says since when it is true: the third
load has rows that come late, and rows that correct the second.

What must come of it is worked out here, too, by plain loops and without cdckit (`truth`).
"""
