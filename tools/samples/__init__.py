"""
The samples in `data/samples`, each from what says what happens in it.

What is invented is written down: `datahub`, `debezium_streams`, `five_feeds` and `rdss` as lines of text,
beside the Parquet that is made of them (`records`), and `brokerage` as the files of its loads, of which
follows what must come of them. `replicate` and `databus` are made of real flights, `tables` of what is true
of these, and `debezium` is what a PostgreSQL sends while it is worked on.

Nothing here imports the package that reads these streams: a mistake there must not be repeated here.
"""
