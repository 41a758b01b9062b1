package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestSecondHolderIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Take(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Take(path)
	var held *HeldError
	if !errors.As(err, &held) {
		t.Fatalf("second holder: got %v, want a HeldError", err)
	}
	if want := strconv.Itoa(os.Getpid()); held.Process != want || held.Path != path {
		t.Errorf("got process %q path %q, want %q %q", held.Process, held.Path, want, path)
	}
	if err := errors.Join(first.Release(), first.Release()); err != nil {
		t.Fatal(err)
	}
	again, err := Take(path)
	if err != nil {
		t.Fatalf("lock after release: %v", err)
	}
	if err := again.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestReleaseOfNothing(t *testing.T) {
	var none *Lock
	if err := errors.Join(none.Release(), new(Lock).Release()); err != nil {
		t.Fatal(err)
	}
}

func TestTakeNamesThePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "lock")
	_, err := Take(path)
	var failed *os.PathError
	if !errors.As(err, &failed) || failed.Path != path {
		t.Fatalf("got %v, want a path error for %s", err, path)
	}
}
