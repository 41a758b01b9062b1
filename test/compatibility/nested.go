package main

import (
	"context"
	"errors"
	"os"
)

// complete copies a module whose go.mod replaces modules by folders that its archive
// lacks, as they are modules of their own: the copy takes them from where they are
// published, at the versions that the go.mod requires. The caller removes the copy.
func (m module) complete(ctx context.Context, l *lab, dir string) (string, error) {
	copied, err := os.MkdirTemp("", "sailplane-compatibility-module-")
	if err != nil {
		return "", err
	}
	if err := m.dropReplaced(ctx, l, dir, copied); err != nil {
		return "", errors.Join(err, os.RemoveAll(copied))
	}
	return copied, nil
}

func (m module) dropReplaced(ctx context.Context, l *lab, from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	for _, path := range m.nested {
		if _, err := l.command(ctx, "go", "mod", "edit", "-C", to, "-dropreplace="+path); err != nil {
			return err
		}
	}
	for _, pkg := range m.binaries {
		// Adds the hashes of what was replaced to go.sum.
		if _, err := l.command(ctx, "go", "list", "-C", to, "-mod=mod", "-deps", pkg); err != nil {
			return err
		}
	}
	return nil
}
