//go:build unix

package life

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"
)

// TestRenewal: a certificate that was renewed is the only one that the sample-apiserver connects with from then on,
// without a restart, and no request fails meanwhile.
func TestRenewal(t *testing.T) {
	t.Parallel()
	l := &life{lender: lend(t, "lender", memory(t))}
	l.begin(t)
	l.use(t)
	for range 2 {
		old := l.line(t)
		l.renewed(t)
		connected := l.line(t)
		connects := func(times int) (position int) {
			t.Helper()
			until(t, "the server connects with the new certificate", func(context.Context) error {
				text := l.Text()
				if position = len(text); strings.Count(text, connected) < times {
					return fmt.Errorf("it did so %d times, want %d", strings.Count(text, connected), times)
				}
				return nil
			})
			return position
		}
		const several = 3
		from := connects(several)
		to := connects(2 * several)
		if strings.Contains(l.Text()[from:to], old) {
			t.Errorf("the server connects with the old certificate, too: %s", l.Text()[from:to])
		}
	}
	l.load.await(t)
	for _, err := range l.load.failures() {
		t.Error(err)
	}
	l.complete(t)
}

// line is what the lender says of a connection with the certificate in the file.
func (l *life) line(t *testing.T) string {
	t.Helper()
	certificates, err := cert.ParseCertsPEM([]byte(l.sample.files.certificate(t)))
	must(t, err)
	return fmt.Sprintf("client certificate %s\n", certificates[0].SerialNumber)
}
