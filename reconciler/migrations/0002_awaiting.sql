-- A revision that deletes much is neither accepted nor refused: it awaits approval.
CREATE TABLE revisions_judged (
    tenant      TEXT NOT NULL,
    source      TEXT NOT NULL,
    verdict     TEXT NOT NULL CHECK (verdict IN ('accepted', 'refused', 'awaiting')),
    revision    TEXT NOT NULL,
    PRIMARY KEY (tenant, source, verdict)
) STRICT, WITHOUT ROWID;
INSERT INTO revisions_judged SELECT tenant, source, verdict, revision FROM revisions;
DROP TABLE revisions;
ALTER TABLE revisions_judged RENAME TO revisions;
