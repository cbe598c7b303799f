"""
The samples in `data/samples`, each from what says what happens in it.

`datahub`, `debezium_streams` and `five_feeds` are written down as lines of text beside the Parquet that is
made of them (`records`), and `brokerage` as the files of its loads, of which follows what must come of them.
`replicate` and `databus` are made of real flights, `tables` of what is true of these, `rdss` of a seed, and
`debezium` is what a PostgreSQL sends while it is worked on.

Nothing that makes a stream imports the package that reads it, for a mistake there must not be repeated here;
but the parts of a large message of RDSS are cut by it.
"""
