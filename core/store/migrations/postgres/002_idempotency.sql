-- created_at is Unix time in milliseconds; status and answer are those of the response.
CREATE TABLE idempotency (
  key TEXT PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  status BIGINT NOT NULL,
  answer TEXT NOT NULL
);
CREATE INDEX idempotency_by_time ON idempotency (created_at);
