-- Events and the waits that they satisfy; lanes, whose runs share places.

ALTER TABLE wait ADD COLUMN topic TEXT NOT NULL DEFAULT '';
CREATE INDEX wait_topic ON wait (account, topic) WHERE status = 'pending' AND topic <> '';

-- Which event a message tells of: the event is kept until the message has been read.
ALTER TABLE inbox ADD COLUMN event INTEGER;
CREATE INDEX inbox_event ON inbox (event) WHERE event IS NOT NULL AND consumed = 0;

-- The row id is the order of events. `at` is what the sender says, `received` decides how long the event is kept.
CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL,
    uid TEXT NOT NULL,
    name TEXT NOT NULL,
    data BLOB NOT NULL,
    at REAL NOT NULL,
    received REAL NOT NULL,
    UNIQUE (account, uid)
);

CREATE INDEX event_name ON event (account, name);
CREATE INDEX event_received ON event (received);

CREATE TABLE event_use (
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    event INTEGER NOT NULL REFERENCES event (id) ON DELETE CASCADE,
    account TEXT NOT NULL,
    PRIMARY KEY (run, event)
) WITHOUT ROWID;

CREATE INDEX event_use_event ON event_use (event);

-- `lane_state`: 'waits' for a place (such a run has no `due`), 'holds' one until the run ends, '' else.
ALTER TABLE run ADD COLUMN lane TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN lane_limit INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN lane_state TEXT NOT NULL DEFAULT '';
CREATE INDEX run_lane ON run (account, lane, lane_state) WHERE lane_state <> '';
