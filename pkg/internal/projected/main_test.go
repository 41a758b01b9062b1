package projected_test

import (
	"os"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}
