-- What requests to models took. Money is in billionths of a US dollar, NULL where the price is not known.

-- `state`: 'open' while the request is in flight (the numbers are the most that it can take), 'settled', or 'lost': nobody
-- knows what it took, and the most counts. Not bound to `run`: what was spent stays spent when runs are deleted.
CREATE TABLE spend (
    id INTEGER PRIMARY KEY,
    account TEXT NOT NULL,
    uid TEXT NOT NULL,
    run TEXT NOT NULL,
    workflow TEXT NOT NULL,
    path TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    model TEXT NOT NULL,
    state TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    nano_usd INTEGER,
    day TEXT NOT NULL,
    at REAL NOT NULL,
    until REAL NOT NULL,
    UNIQUE (account, uid)
);

CREATE INDEX spend_open ON spend (account) WHERE state = 'open';
CREATE INDEX spend_run ON spend (account, run);
CREATE INDEX spend_at ON spend (account, at);

-- What is settled or lost, summed up: by run (`day` is ''), by workflow and day, by account (`subject` is '') and day.
CREATE TABLE spend_sum (
    account TEXT NOT NULL,
    scope TEXT NOT NULL,
    subject TEXT NOT NULL,
    day TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    nano_usd INTEGER NOT NULL,
    PRIMARY KEY (account, scope, subject, day)
) WITHOUT ROWID;

-- What limits were raised to; NULL where that was not raised.
CREATE TABLE spend_limit (
    account TEXT NOT NULL,
    scope TEXT NOT NULL,
    subject TEXT NOT NULL,
    below TEXT NOT NULL,
    period TEXT NOT NULL,
    tokens INTEGER,
    nano_usd INTEGER,
    PRIMARY KEY (account, scope, subject, below, period)
) WITHOUT ROWID;
