package crd_test

import (
	"os"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
)

// TestMain looks for goroutines that outlive their servers. The storage of a CRD
// that was changed or deleted ends a second after it.
// https://github.com/kubernetes/apiextensions-apiserver/blob/v0.37.2/pkg/apiserver/customresource_handler.go#L570
func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }
