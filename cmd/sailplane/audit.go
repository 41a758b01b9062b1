package main

import (
	"path/filepath"

	"github.com/sailplane-dev/sailplane/pkg/audit"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// auditFlags say what is recorded and where.
type auditFlags struct{ log, policy string }

const (
	auditFile  = "audit.log" // in the data directory
	auditBytes = 100 << 20   // before it is renamed
	auditKept  = 10          // renamed files
)

// part records to the file, or nothing.
func (a auditFlags) part(dataDir string) controlplane.Part {
	switch a.log {
	case "none":
		return controlplane.Parts{}
	case "":
		a.log = filepath.Join(dataDir, auditFile)
	}
	return audit.Log{Path: a.log, PolicyFile: a.policy, MaxSize: auditBytes, MaxBackups: auditKept}
}
