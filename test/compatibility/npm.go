package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// packages are those that a package.json in npm/ names, at the versions of its package-lock.json.
type packages struct {
	// variable is the name, in scripts, of the folder that has node_modules.
	variable string
	// name is that of the folder in npm/.
	name string
}

func (p packages) fetch(ctx context.Context, l *lab) ([]folder, error) {
	if _, err := exec.LookPath("npm"); err != nil {
		return nil, errors.New("npm is not installed, which comes with Node.js: it installs the packages of " + p.name)
	}
	own := filepath.Join(l.root, "test", "compatibility", "npm", p.name)
	dir := filepath.Join(l.cache, "npm", p.name)
	bin := filepath.Join(dir, "node_modules", ".bin")
	folders := []folder{{variable: p.variable, dir: dir}, {dir: bin}}
	lock, err := os.ReadFile(filepath.Join(own, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	// installed is the lock of what is there, written when all of it is.
	installed := filepath.Join(dir, "installed.json")
	if last, err := os.ReadFile(installed); err == nil && bytes.Equal(last, lock) {
		return folders, nil
	}
	l.say("install the packages of npm/%s", p.name)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o750)); err != nil {
		return nil, err
	}
	wanted, err := os.ReadFile(filepath.Join(own, "package.json"))
	if err != nil {
		return nil, err
	}
	for name, text := range map[string][]byte{"package.json": wanted, "package-lock.json": lock} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	// Nothing of the packages runs when they are installed.
	if _, err := l.command(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", dir); err != nil {
		return nil, fmt.Errorf("install the packages of npm/%s: %w", p.name, err)
	}
	return folders, os.WriteFile(installed, lock, 0o600)
}
