package script

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sailplane-dev/sailplane/test/program"
)

func TestMain(m *testing.M) {
	testscript.Main(program.Tests{M: m, Build: Build}, map[string]func(){"pieces": servePieces})
}

// root is the folder of the repository.
var root = filepath.Join("..", "..")

// storages maps each storage's name to the value of --storage.
var storages = map[string]string{
	"memory": "memory",
	"sqlite": "sqlite:objects.db",
	"etcd":   "etcd:objects",
}

func TestAPI(t *testing.T) {
	t.Parallel()
	for name, storage := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testscript.Run(t, params("api", storage))
		})
	}
}

// TestAnswers has what no storage sees: memory is enough.
func TestAnswers(t *testing.T) {
	t.Parallel()
	testscript.Run(t, params("answers", "memory"))
}

func TestPersistent(t *testing.T) {
	t.Parallel()
	for name, storage := range storages {
		if name == "memory" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testscript.Run(t, params("persistent", storage))
		})
	}
}

func TestBinary(t *testing.T) {
	t.Parallel()
	testscript.Run(t, params("binary", "memory"))
}

func params(folder, storage string) testscript.Params {
	return testscript.Params{
		Dir:                 filepath.Join("testdata", folder),
		RequireExplicitExec: true,
		Setup:               func(e *testscript.Env) error { return Setup(e, root, storage) },
		Cmds:                Commands(),
	}
}
