//go:build !cgo

package sqlite

import "strings"

// driverName is what kine's driver registers with database/sql.
const driverName = "sqlite"

// checkDSN is dsn for the check before the start, which waits a second for
// another program that has the file open.
func checkDSN(dsn string) string {
	path, _, _ := strings.Cut(dsn, "?")
	return "file://" + path + "?_pragma=busy_timeout(1000)"
}
