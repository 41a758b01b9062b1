//go:build unix

package kine

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/nats"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/t4"
)

// wrong is the password of logins that are refused.
const wrong = "wr0ng-p4ssw.rd"

// TestFailingStartsSayNoPassword reads all that a process says whose starts fail:
// errors, logs at every level, and metrics.
func TestFailingStartsSayNoPassword(t *testing.T) {
	t.Parallel()
	for name, e := range engines() {
		if e.password == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output := child(t, name, e.start(t), 0, "-test.run=^TestChildFails$")
			if !strings.HasSuffix(output, "PASS\n") || !strings.Contains(output, "refused: ") || !strings.Contains(output, "no answer within") {
				t.Errorf("it must fail for a wrong password and for want of an answer:\n%s", output)
			}
			for _, secret := range []string{wrong, e.password, url.QueryEscape(e.password), url.PathEscape(e.password)} {
				if strings.Contains(output, secret) {
					t.Errorf("it says the password %s:\n%s", secret, output)
				}
			}
		})
	}
}

// TestChildFails starts storages that cannot start, in the process that
// TestFailingStartsSayNoPassword starts.
func TestChildFails(t *testing.T) {
	e, found := engines()[os.Getenv(childEngine)]
	if !found {
		t.Skip("another test runs this one")
	}
	logrus.SetLevel(logrus.TraceLevel)
	right, err := url.Parse(fmt.Sprintf(os.Getenv(childURL), 1))
	if err != nil {
		t.Fatal(err)
	}
	refused, nobody := *right, *right
	refused.User = url.UserPassword("sailplane", wrong)
	nobody.Host = unusedAddress(t)
	unreadable := strings.Replace(right.String(), "://", "://%zz", 1)
	before := goleak.IgnoreCurrent()
	failStart(t, e.storage(refused.String(), startTimeout))
	failStart(t, e.storage(nobody.String(), time.Second))
	failStart(t, e.storage(unreadable, time.Second))
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		t.Log(f.String())
	}
}

// failStart expects an error, and has it and the storage in the output.
func failStart(t *testing.T, s controlplane.Storage) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	b := s.Open()
	err := b.Start(ctx)
	if err == nil {
		t.Error("it starts")
	}
	t.Logf("%v %+v: %v", s, s, err)
	if err := b.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// unusedAddress is where nothing listens.
func unusedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// TestDescriptions refuses what cannot be meant, and says nothing of a password.
func TestDescriptions(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		storage controlplane.Storage
		want    string
	}{
		"decoded by nobody":   {nats.JetStream{URL: "nats://u@127.0.0.1?sync=always", Password: "s3cret/"}, "credsFile"},
		"acknowledged early":  {nats.JetStream{URL: "nats://u:s3cret@127.0.0.1"}, "sync=always"},
		"a context":           {nats.JetStream{URL: "nats://u:s3cret@127.0.0.1?sync=always&contextFile=x"}, "contextFile"},
		"a key and no bucket": {t4.Node{URL: "t4://u@/" + t.TempDir(), Password: "s3cret"}, "no bucket"},
		"half a key":          {t4.Node{URL: "t4://u@/" + t.TempDir() + "?bucket=bucket"}, "credentials"},
		"several nodes":       {t4.Node{URL: "t4:///" + t.TempDir() + "?service-name=a.b"}, "one server"},
		"nobody at S3": {
			t4.Node{URL: "t4://u@/" + t.TempDir() + "?bucket=bucket&endpoint=http://" + unusedAddress(t), Password: "s3cret"},
			"connection refused",
		},
		"several servers": {nats.JetStream{URL: "nats://u:s3cret@a:1,b"}, "percent-encoded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.storage.Open().Start(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestStartEndsWithItsContext has a database that takes connections and says
// nothing.
func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	b := nats.JetStream{URL: "nats://u:p@" + l.Addr().String() + "?sync=always", DialTimeout: time.Second}.Open()
	if err := b.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no answer within 1s") {
		t.Errorf("got %v", err)
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
