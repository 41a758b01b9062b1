//go:build !cgo

package sqlite

import (
	"database/sql/driver"

	"modernc.org/sqlite"
)

// implementation is SQLite, translated to Go.
func implementation() driver.Driver { return &sqlite.Driver{} }
