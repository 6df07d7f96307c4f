-- Every record is keyed by tenant. Bodies are JSON of the planner's types: one type in memory, on the wire and here.

CREATE TABLE leader (
    tenant TEXT PRIMARY KEY,
    term   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE stages (
    tenant TEXT NOT NULL,
    stage  TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (tenant, stage)
) STRICT, WITHOUT ROWID;

CREATE TABLE units (
    tenant TEXT NOT NULL,
    unit   TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (tenant, unit)
) STRICT, WITHOUT ROWID;

CREATE TABLE deployments (
    tenant TEXT NOT NULL,
    stage  TEXT NOT NULL,
    number INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (tenant, stage, number)
) STRICT, WITHOUT ROWID;

-- What each release meant when it was first deployed.
CREATE TABLE deployed_releases (
    tenant  TEXT NOT NULL,
    release TEXT NOT NULL,
    digest  TEXT NOT NULL,
    PRIMARY KEY (tenant, release)
) STRICT, WITHOUT ROWID;

-- One queue per host. `answer` is null until the host has answered, then `accepted` or `refused`.
CREATE TABLE commands (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant  TEXT NOT NULL,
    id      TEXT NOT NULL,
    host    TEXT NOT NULL,
    unit    TEXT NOT NULL,
    body    TEXT NOT NULL,
    queued  INTEGER NOT NULL,
    answer  TEXT,
    reason  TEXT,
    UNIQUE (tenant, id)
) STRICT;
CREATE INDEX commands_of_host ON commands (tenant, host, number) WHERE answer IS NULL;
CREATE INDEX commands_of_unit ON commands (tenant, unit);

CREATE TABLE hosts (
    tenant   TEXT NOT NULL,
    host     TEXT NOT NULL,
    observed TEXT NOT NULL,
    PRIMARY KEY (tenant, host)
) STRICT, WITHOUT ROWID;

CREATE TABLE gateways (
    tenant   TEXT NOT NULL,
    gateway  TEXT NOT NULL,
    observed TEXT NOT NULL,
    PRIMARY KEY (tenant, gateway)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant  TEXT NOT NULL,
    at      INTEGER NOT NULL,
    subject TEXT NOT NULL,
    level   TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;
CREATE INDEX events_of_subject ON events (tenant, subject, id);

-- Join tokens, by the hash of their secret.
CREATE TABLE tokens (
    tenant  TEXT NOT NULL,
    hash    TEXT NOT NULL,
    role    TEXT NOT NULL,
    name    TEXT NOT NULL,
    expires INTEGER NOT NULL,
    used    INTEGER,
    PRIMARY KEY (tenant, hash)
) STRICT, WITHOUT ROWID;

-- The revision of a source that is in force, and the one that was refused after it.
CREATE TABLE revisions (
    tenant      TEXT NOT NULL,
    source      TEXT NOT NULL,
    verdict     TEXT NOT NULL CHECK (verdict IN ('accepted', 'refused')),
    revision    TEXT NOT NULL,
    PRIMARY KEY (tenant, source, verdict)
) STRICT, WITHOUT ROWID;

-- Tokens served, once each: a ledger's number is never used for two requests.
CREATE TABLE usage (
    tenant       TEXT NOT NULL,
    ledger       TEXT NOT NULL,
    number       INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    customer     TEXT NOT NULL,
    model        TEXT NOT NULL,
    input        INTEGER NOT NULL,
    cached_input INTEGER NOT NULL,
    output       INTEGER NOT NULL,
    reasoning    INTEGER NOT NULL,
    record       TEXT NOT NULL,
    PRIMARY KEY (tenant, ledger, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_of_customer ON usage (tenant, customer, at);
