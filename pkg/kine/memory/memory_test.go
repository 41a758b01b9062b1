package memory_test

import (
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/storagetest"
	"github.com/sailplane-dev/sailplane/pkg/kine/memory"
)

func open() controlplane.Datastore { return memory.Store{} }

func TestContract(t *testing.T) { storagetest.Run(t, open) }

func BenchmarkStart(b *testing.B)  { storagetest.BenchmarkStart(b, open) }
func BenchmarkCreate(b *testing.B) { storagetest.BenchmarkCreate(b, open) }
