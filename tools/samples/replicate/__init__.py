"""
What Qlik Replicate would have sent of some days, or a year, of New York flights.

Read the modules in this order: `tables` (what is replicated), `flights` (what is real), `changes` and `lives`
(what happens to a flight, and when), `messages` (changes in the order of their source, as bytes), `delivery`
(what a feed does to messages), `feed` (all of it, day by day, as Parquet). All chance is in `seeds`.
"""
