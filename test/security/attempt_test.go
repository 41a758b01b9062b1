package security

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// attempt is one way to try to get in. Its name is that of its row in
// docs/security.md, in the table of the test that makes it.
type attempt struct {
	// reason says why it must fail.
	reason string
	// request is what is sent when one request is the attempt.
	request
	// code is the answer; 0: any from 400 to 499.
	code int
	// message is a part of the answer.
	message string
	// try makes the attempt when it is more than one request.
	try func(t *testing.T, w *world)
}

// attempts are all of them, by the name of the test that makes them.
func attempts() map[string]map[string]attempt {
	return map[string]map[string]attempt{
		"TestAnonymous":          anonymousAttempts(),
		"TestHeaders":            headerAttempts(),
		"TestTokens":             tokenAttempts(),
		"TestAccounts":           accountAttempts(),
		"TestPaths":              pathAttempts(),
		"TestVerbs":              verbAttempts(),
		"TestImpersonation":      impersonationAttempts(),
		"TestEscalation":         escalationAttempts(),
		"TestCertificates":       certificateAttempts(),
		"TestNames":              nameAttempts(),
		"TestSizes":              sizeAttempts(),
		"TestConnections":        connectionAttempts(),
		"TestDoor":               doorAttempts(),
		"TestSlow":               slowAttempts(),
		"TestSmuggling":          smugglingAttempts(),
		"TestFrames":             frameAttempts(),
		"TestBombs":              bombAttempts(),
		"TestBodies":             bodyAttempts(),
		"TestWebhooks":           webhookAttempts(),
		"TestLimits":             limitAttempts(),
		"TestBackups":            backupAttempts(),
		"TestHistory":            historyAttempts(),
		"TestClientCertificates": clientCertificateAttempts(),
		"TestAuditLog":           auditAttempts(""),
		"TestAnswers":            answerAttempts(),
		"TestProxied":            proxiedAttempts(nil),
		"TestWatches":            watchAttempts(),
		"TestTenants":            tenantAttempts(),
	}
}

// attack makes all attempts of a test. After them the server is unharmed.
func attack(t *testing.T, w *world, all map[string]attempt) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a := all[name]
		t.Run(name, func(t *testing.T) {
			if a.try != nil {
				a.try(t, w)
				return
			}
			a.check(t, w.send(t, a.request))
		})
	}
	w.unharmed(t)
}

func (a attempt) check(t *testing.T, got answer) {
	t.Helper()
	if a.code == 0 && got.code >= 400 && got.code < 500 {
		a.code = got.code
	}
	if got.code != a.code || !strings.Contains(got.body, a.message) {
		t.Errorf("%s %s as %q: %s: %d, want %d with %q: %s", a.method, short(a.path), a.as, a.reason, got.code, a.code, a.message, short(got.body))
	}
}

// TestDocumented holds docs/security.md and the attempts together: a row for
// each, and none of which there is no test.
func TestDocumented(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| ([^|`]+) \\| ([^|]+) \\| ([^|]+) \\| `(Test\\w+)` \\|$")
	documented := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(string(content), -1) {
		documented[m[4]] = append(documented[m[4]], m[1])
		if strings.TrimSpace(m[2]) == "" || strings.TrimSpace(m[3]) == "" {
			t.Errorf("%q says neither what is tried nor what happens", m[1])
		}
	}
	tried := map[string][]string{}
	for test, all := range attempts() {
		tried[test] = slices.Sorted(maps.Keys(all))
		slices.Sort(documented[test])
		for name, a := range all {
			if a.reason == "" || (a.try == nil) == (a.path == "") {
				t.Errorf("%s %q: want a reason, and a request or a function", test, name)
			}
		}
	}
	if diff := cmp.Diff(tried, documented); diff != "" {
		t.Errorf("docs/security.md (-attempts +rows):\n%s", diff)
	}
}
