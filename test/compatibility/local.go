package main

import (
	"context"
	"path/filepath"
)

// local is a module of this folder: what users of a program write themselves, or main packages
// for a published module whose own are in modules that cannot be fetched.
type local struct {
	dir string
	// binaries are packages, by the name of their binary.
	binaries map[string]string
	ldflags  string
}

// fetch builds each time, as the packages may have changed: Go knows when they have not.
func (s local) fetch(ctx context.Context, l *lab) ([]folder, error) {
	bin := filepath.Join(l.cache, "bin", s.dir)
	for name, pkg := range s.binaries {
		l.say("build %s of %s", pkg, s.dir)
		if _, err := l.command(ctx, "go", "build", "-C", filepath.Join(l.root, "test", "compatibility", s.dir),
			"-mod=readonly", "-ldflags=-s -w "+s.ldflags, "-o", filepath.Join(bin, name), pkg); err != nil {
			return nil, err
		}
	}
	return []folder{{dir: bin}}, nil
}
