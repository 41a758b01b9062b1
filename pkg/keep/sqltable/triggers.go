package sqltable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// uid is an expression for a new UID.
func (d Dialect) uid() string {
	if d == PostgreSQL {
		return `gen_random_uuid()::text`
	}
	return `lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || ` +
		`'-a' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))`
}

// now is an expression for the time, as objects have it.
func (d Dialect) now() string {
	if d == PostgreSQL {
		return `to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`
	}
	return `strftime('%Y-%m-%dT%H:%M:%SZ', 'now')`
}

// triggers give each change of a row a version and note it, whoever makes it. They run after the
// change, so that on PostgreSQL a statement has all its rows before it waits for the version: what
// is in the other order would wait for each other. A trigger's own update of a row sets the newest
// version, which nobody else does, and is left alone.
//
// What others insert without an object gets a UID and a time.
func (s *statements) triggers() []string {
	replace := strings.NewReplacer(
		"{table}", quoted(s.table), "{version}", quoted(s.table+"_version"), "{changes}", quoted(s.table+"_changes"),
		"{function}", quoted(s.table+"_changed"), "{inserted}", quoted(s.table+"_inserted"), "{updated}", quoted(s.table+"_updated"),
		"{renamed}", quoted(s.table+"_renamed"), "{deleted}", quoted(s.table+"_deleted"), "{emptied}", quoted(s.table+"_emptied"),
		"{changed}", quoted(s.table+"_changed"), "{newuid}", s.dialect.uid(), "{now}", s.dialect.now(),
	)
	all := sqliteTriggers()
	if s.dialect == PostgreSQL {
		all = postgresTriggers()
	}
	for i := range all {
		all[i] = replace.Replace(all[i])
	}
	return all
}

func sqliteTriggers() []string {
	const (
		grow   = ` UPDATE {version} SET "version" = "version" + 1; `
		note   = ` INSERT INTO {changes} SELECT "version", %[1]s."namespace", %[1]s."name", %[2]d FROM {version}; `
		forget = ` DELETE FROM {changes} WHERE "version" <= (SELECT "version" - "history" FROM {version}); `
		set    = ` UPDATE {table} SET "resource_version" = (SELECT "version" FROM {version})%s ` +
			`WHERE "namespace" = new."namespace" AND "name" = new."name"; `
	)
	born := `, "uid" = CASE WHEN new."object" IS NULL THEN COALESCE(new."uid", {newuid}) ELSE new."uid" END` +
		`, "created" = CASE WHEN new."object" IS NULL THEN COALESCE(new."created", {now}) ELSE new."created" END`
	return []string{
		`CREATE TRIGGER IF NOT EXISTS {inserted} AFTER INSERT ON {table} BEGIN` +
			grow + fmt.Sprintf(set, born) + fmt.Sprintf(note, "new", 0) + forget + `END`,
		`CREATE TRIGGER IF NOT EXISTS {updated} AFTER UPDATE ON {table} WHEN new."resource_version" = old."resource_version" ` +
			`OR new."resource_version" <> (SELECT "version" FROM {version}) BEGIN` +
			grow + fmt.Sprintf(set, "") + fmt.Sprintf(note, "new", 0) + forget + `END`,
		`CREATE TRIGGER IF NOT EXISTS {renamed} AFTER UPDATE OF "namespace", "name" ON {table} WHEN new."namespace" <> old."namespace" ` +
			`OR new."name" <> old."name" BEGIN` + grow + fmt.Sprintf(note, "old", 1) + forget + `END`,
		`CREATE TRIGGER IF NOT EXISTS {deleted} AFTER DELETE ON {table} BEGIN` + grow + fmt.Sprintf(note, "old", 1) + forget + `END`,
	}
}

// postgresTriggers run with the rights of who made the table, so that others need none on its
// versions and changes.
func postgresTriggers() []string {
	return []string{
		`CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $body$
DECLARE v bigint;
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    UPDATE {version} SET "version" = "version" + 1, "start" = "version" + 1;
    DELETE FROM {changes};
    RETURN NULL;
  END IF;
  IF TG_OP = 'UPDATE' AND NEW."resource_version" <> OLD."resource_version"
    AND NEW."resource_version" = (SELECT "version" FROM {version}) THEN
    RETURN NULL;
  END IF;
  IF TG_OP = 'DELETE' OR TG_OP = 'UPDATE' AND (OLD."namespace" <> NEW."namespace" OR OLD."name" <> NEW."name") THEN
    UPDATE {version} SET "version" = "version" + 1 RETURNING "version" INTO v;
    INSERT INTO {changes} VALUES (v, OLD."namespace", OLD."name", 1);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    UPDATE {version} SET "version" = "version" + 1 RETURNING "version" INTO v;
    IF TG_OP = 'INSERT' AND NEW."object" IS NULL THEN
      UPDATE {table} SET "resource_version" = v, "uid" = COALESCE(NEW."uid", {newuid}), "created" = COALESCE(NEW."created", {now})
        WHERE "namespace" = NEW."namespace" AND "name" = NEW."name";
    ELSE
      UPDATE {table} SET "resource_version" = v WHERE "namespace" = NEW."namespace" AND "name" = NEW."name";
    END IF;
    INSERT INTO {changes} VALUES (v, NEW."namespace", NEW."name", 0);
  END IF;
  DELETE FROM {changes} WHERE "version" <= v - (SELECT "history" FROM {version});
  RETURN NULL;
END $body$`,
		`DO $body$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = '{table}'::regclass AND tgname = trim('{changed}', '"')) THEN
    CREATE TRIGGER {changed} AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION {function}();
    CREATE TRIGGER {emptied} AFTER TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION {function}();
  END IF;
END $body$`,
	}
}

// retry calls f again while another transaction is in its way.
func retry(ctx context.Context, f func() error) error {
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := f()
		if err == nil || !isBusy(err) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// isBusy tells whether a transaction was given up for another one. Drivers of SQLite say so only
// in words.
func isBusy(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState() == "40P01" || state.SQLState() == "40001"
	}
	return strings.Contains(err.Error(), "SQLITE_BUSY") || strings.Contains(err.Error(), "database is locked") ||
		strings.Contains(err.Error(), "database table is locked")
}
