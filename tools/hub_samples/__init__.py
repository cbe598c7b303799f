"""
Make messages for a data hub out of real flights: several systems speak of each, in their own ways.

Read the modules in this order: `schemas` (who speaks of what, in which words and with which priority),
`flights` (what is decided about a flight before anybody tells), `bookings` (who flies: all invented), then
one module per sender: `reference`, `weather`, `schedule`, `airline`, `airport`, `sales`.
`damage` holds what goes wrong on purpose, `sending` and `store` make records and files of it all, `truth`
says what must come of it, and `filters` is what a hub needs besides the schema.

The lives of the flights hang on the same seeds as in `tools.samples`, whose real part is read here too.
Nothing here imports the package that reads these messages: a mistake there must not be repeated here.
"""
