"""
Make change streams out of real data: what Qlik Replicate would have sent of a year of New York flights.

Read the modules in this order: `tables` (what is replicated), `lives` (what happens to a flight, and when),
`journal` (changes in the order of their source), `envelope` (a change as bytes), `disorder` and `corrupt`
(what a feed does to messages), `feed` (all of it, day by day), `store` (Parquet), `truth` (what tests compare
with).

Nothing here imports the package that reads these streams: a mistake there must not be repeated here.
"""
