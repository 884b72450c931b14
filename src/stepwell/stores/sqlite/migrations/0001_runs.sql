-- Runs, their journals, waits and inboxes. Times are UTC seconds since 1970, except `lease_until`, which is in seconds
-- since the start of the machine. JSON is text in bytes, written once and never parsed here.

CREATE TABLE definition (
    account TEXT NOT NULL,
    digest TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (account, digest)
);

-- `due`: from when a run without an owner may be claimed; NULL for an owned one, and for one that only a message wakes.
-- `process`: which process and store object holds the lease; '' for none.
CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uid TEXT NOT NULL UNIQUE,
    account TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    definition TEXT NOT NULL,
    status TEXT NOT NULL,
    requester TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    created REAL NOT NULL,
    started REAL NOT NULL DEFAULT 0,
    ended REAL NOT NULL DEFAULT 0,
    active REAL NOT NULL DEFAULT 0,
    generation INTEGER NOT NULL DEFAULT 0,
    wake_at REAL NOT NULL DEFAULT 0,
    due REAL,
    epoch INTEGER NOT NULL DEFAULT 0,
    owner TEXT NOT NULL DEFAULT '',
    process TEXT NOT NULL DEFAULT '',
    lease_until REAL NOT NULL DEFAULT 0
);

CREATE UNIQUE INDEX run_idempotency ON run (account, workflow, idempotency_key) WHERE idempotency_key <> '';
CREATE INDEX run_due ON run (due) WHERE due IS NOT NULL;
CREATE INDEX run_owned ON run (process, lease_until) WHERE process <> '';
CREATE INDEX run_account ON run (account);
CREATE INDEX run_account_status ON run (account, status);
CREATE INDEX run_account_workflow ON run (account, workflow);

-- Apart from `run`, so that a lease is renewed without rewriting them.
CREATE TABLE run_content (
    run INTEGER PRIMARY KEY REFERENCES run (id) ON DELETE CASCADE,
    input BLOB NOT NULL,
    project BLOB NOT NULL,
    output BLOB,
    error BLOB,
    usage BLOB
);

-- The row id is the order of the journal: it grows over all runs.
CREATE TABLE journal (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    generation INTEGER NOT NULL,
    kind TEXT NOT NULL,
    digest TEXT NOT NULL,
    at REAL NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (run, path, generation)
);

CREATE TABLE blob (
    account TEXT NOT NULL,
    digest TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (account, digest)
);

CREATE TABLE wait (
    id INTEGER PRIMARY KEY,
    account TEXT NOT NULL,
    uid TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    generation INTEGER NOT NULL,
    kind TEXT NOT NULL,
    request BLOB NOT NULL,
    digest TEXT NOT NULL,
    opened REAL NOT NULL,
    deadline REAL NOT NULL,
    on_expire TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending',
    decision BLOB,
    decided REAL NOT NULL DEFAULT 0,
    UNIQUE (run, path, generation),
    UNIQUE (account, uid)
);

CREATE INDEX wait_deadline ON wait (deadline) WHERE status = 'pending' AND deadline > 0;
CREATE INDEX wait_pending ON wait (account) WHERE status = 'pending';

CREATE TABLE inbox (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    body BLOB NOT NULL,
    at REAL NOT NULL,
    consumed INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX inbox_unread ON inbox (run) WHERE consumed = 0;

CREATE TABLE outgoing (
    id INTEGER PRIMARY KEY,
    account TEXT NOT NULL,
    key TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    channel TEXT NOT NULL,
    recipient BLOB NOT NULL,
    subject TEXT NOT NULL,
    body BLOB NOT NULL,
    priority TEXT NOT NULL,
    at REAL NOT NULL,
    status TEXT NOT NULL,
    UNIQUE (account, key)
);

CREATE INDEX outgoing_run ON outgoing (run);

CREATE TABLE worker (
    name TEXT PRIMARY KEY,
    process TEXT NOT NULL,
    serves INTEGER NOT NULL,
    until REAL NOT NULL
) WITHOUT ROWID;

-- One row that counts what others may want to know of: see `changed`.
CREATE TABLE pulse (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    beats INTEGER NOT NULL
);

INSERT INTO pulse (id, beats) VALUES (1, 0);
