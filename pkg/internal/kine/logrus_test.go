package kine

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/drivers/memory"
	"github.com/sirupsen/logrus"
)

func TestQuietKine(t *testing.T) {
	var out bytes.Buffer
	logrus.SetOutput(&out)
	t.Cleanup(func() { logrus.SetOutput(os.Stderr) })

	quiet()
	quiet()
	logrus.Info("from the program")
	if _, _, err := memory.New(t.Context(), nil, &drivers.Config{}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "from the program") || strings.Contains(got, "in-memory") {
		t.Errorf("got %q, want the program's line only", got)
	}
}
