package insight_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
)

func TestMain(m *testing.M) {
	// Upstream's health check "log" starts a goroutine of the process, when it is first asked.
	os.Exit(leaktest.Run(m, goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/util/wait.Forever")))
}
