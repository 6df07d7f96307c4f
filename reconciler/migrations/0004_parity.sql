-- Runs of parity suites, with each case and every difference.
CREATE TABLE parity_reports (
    tenant     TEXT NOT NULL,
    stage      TEXT NOT NULL,
    deployment INTEGER NOT NULL,
    part       TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    report     TEXT NOT NULL,
    PRIMARY KEY (tenant, stage, deployment, part, attempt)
) STRICT, WITHOUT ROWID;

-- What a deployment's reference answered: the release before is gone by the time that the last gate needs it.
CREATE TABLE parity_answers (
    tenant     TEXT NOT NULL,
    stage      TEXT NOT NULL,
    deployment INTEGER NOT NULL,
    answers    TEXT NOT NULL,
    PRIMARY KEY (tenant, stage, deployment)
) STRICT, WITHOUT ROWID;
