//go:build !unix

package main

import (
	"context"
	"errors"
)

func sharedNames() []string { return nil }

func (*lab) sharedTarget(string, *peers) target { return nil }

func measureShared(context.Context, *lab, target) error {
	return errors.New("databases are started on Unix only")
}
