//go:build !unix

package main

import "errors"

func ignoreFull() {}

func limitFiles(uint64) error { return errors.ErrUnsupported }
