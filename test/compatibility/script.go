package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sailplane-dev/sailplane/test/script"
)

// runScript runs the script of a program, whose server has the default storage.
func (l *lab) runScript(p program, folders []folder) error {
	logs := filepath.Join(l.cache, "logs", p.name)
	if err := errors.Join(os.RemoveAll(logs), os.MkdirAll(logs, 0o700)); err != nil {
		return err
	}
	o := &outcome{}
	o.Run("", func(t testscript.T) {
		testscript.RunT(t, testscript.Params{
			Files:               []string{p.file(l.root)},
			RequireExplicitExec: true,
			RequireUniqueNames:  true,
			Cmds:                commands(),
			Setup: func(e *testscript.Env) error {
				if err := script.Setup(e, l.root, ""); err != nil {
					return err
				}
				var path []string
				for _, f := range folders {
					if f.variable == "" {
						path = append(path, f.dir)
					} else {
						e.Setenv(f.variable, f.dir)
					}
				}
				e.Setenv("PATH", strings.Join(append(path, e.Getenv("PATH")), string(os.PathListSeparator)))
				e.Setenv("LOGS", logs)
				s := &stage{logs: logs}
				e.Values[stageKey{}] = s
				e.Defer(func() { // before the server is stopped
					err := s.alive()
					s.end()
					if err != nil {
						t.Fatal(err)
					}
				})
				return nil
			},
		})
	})
	if o.failed {
		return errors.New(strings.TrimSpace(o.log.String()))
	}
	return nil
}
