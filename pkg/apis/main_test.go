package apis_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m,
		// client-go's port forwarder leaves it behind if the connection ends between the two streams of a
		// forwarded connection: it sends an error that nobody reads.
		goleak.IgnoreAnyFunction("k8s.io/client-go/tools/portforward.(*PortForwarder).handleConnection.func1")))
}
