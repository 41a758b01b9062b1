package memory_test

import (
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/storagetest"
)

func open(testing.TB) controlplane.Storage { return memory.Store{} }

func TestContract(t *testing.T) { storagetest.Run(t, open) }

func BenchmarkStart(b *testing.B)  { storagetest.BenchmarkStart(b, open) }
func BenchmarkCreate(b *testing.B) { storagetest.BenchmarkCreate(b, open) }
