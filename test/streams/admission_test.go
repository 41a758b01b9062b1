package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

const policies = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-reboot}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [fruit.example.com], apiVersions: [v1], operations: [CONNECT], resources: [apples/console]}
  validations:
  - expression: "!has(object.command) || !('reboot' in object.command)"
    message: consoles cannot reboot
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-reboot}
spec: {policyName: no-reboot, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: gently}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [fruit.example.com], apiVersions: [v1], operations: [CREATE], resources: [apples/shake]}
  validations:
  - expression: object.force < 10
    message: shake gently
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: gently}
spec: {policyName: gently, validationActions: [Deny]}
`

// ran runs a command in the console of the apple.
func ran(t *testing.T, config *rest.Config, transport, command string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := executor(t, config, transport, "stdout=1&command="+command).
		StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out})
	return out.String(), err
}

// shaken shakes the apple, and returns how many apples fell.
func shaken(ctx context.Context, p *planetest.Plane, force int) (int32, error) {
	body, err := p.Client().CoreV1().RESTClient().Post().
		AbsPath("/apis/fruit.example.com/v1/namespaces/default/apples/gala/shake").
		Body(fmt.Appendf(nil, `{"apiVersion":"fruit.example.com/v1","kind":"Shake","force":%d}`, force)).
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, body)
	}
	var h Harvest
	return h.Apples, json.Unmarshal(body, &h)
}

// TestAdmission: functions and policies see what opens a console, as a CONNECT, and what a client
// has done, as a create of the sub-resource. They can refuse both.
func TestAdmission(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]bool{}
	p, config := orchard(t,
		admit.Validate("no-format", func(_ context.Context, a admit.Attributes) error {
			if a.GetSubresource() != "console" {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			seen[fmt.Sprint(a.GetOperation(), " ", a.GetResource(), " ", a.GetKind().Kind, " ", a.GetName())] = true
			o, is := a.GetObject().(*corev1.PodExecOptions)
			switch {
			case !is:
				return fmt.Errorf("the object is a %T", a.GetObject())
			case strings.Join(o.Command, " ") == "format":
				return errors.New("consoles cannot format")
			}
			return nil
		}),
		admit.Mutate("half", func(_ context.Context, a admit.Attributes) error {
			if s, is := a.GetObject().(*Shake); is {
				s.Force -= s.Force % 2 // it may be called twice
			}
			return nil
		}),
	)
	p.Apply(t, planetest.YAML(policies))
	p.Eventually(t, func(ctx context.Context) error {
		_, err := shaken(ctx, p, 10)
		if err == nil || !strings.Contains(err.Error(), "shake gently") {
			return fmt.Errorf("the policy does not hold: %w", err)
		}
		return nil
	})
	if apples, err := shaken(t.Context(), p, 9); err != nil || apples != 16 {
		t.Errorf("%d apples fell, want 16: %v", apples, err)
	}
	for _, transport := range []string{"WebSocket", "SPDY"} {
		if out, err := ran(t, config, transport, "date"); err != nil || out != "[date]\n" {
			t.Errorf("%s: the console says %q: %v", transport, out, err)
		}
		if out, err := ran(t, config, transport, "format"); err == nil || out != "" || !strings.Contains(err.Error(), "cannot format") {
			t.Errorf("%s: the function does not refuse: %q, %v", transport, out, err)
		}
		p.Eventually(t, func(context.Context) error {
			out, err := ran(t, config, transport, "reboot")
			if err == nil || out != "" || !strings.Contains(err.Error(), "cannot reboot") {
				return fmt.Errorf("%s: the policy does not refuse: %q, %w", transport, out, err)
			}
			return nil
		})
	}
	mu.Lock()
	defer mu.Unlock()
	want := map[string]bool{"CONNECT fruit.example.com/v1, Resource=apples PodExecOptions gala": true}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("admission sees: -want +got:\n%s", diff)
	}
}

// TestAudit: who opened a console, or was refused, and what a client had done, is in the record.
func TestAudit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.log")
	p, config := orchard(t, auditing.Log{
		Path: file, Policy: &auditv1.Policy{Rules: []auditv1.PolicyRule{{Level: auditv1.LevelRequestResponse}}},
	})
	stranger := rest.CopyConfig(config)
	stranger.Impersonate.UserName = "stranger"
	for _, transport := range []string{"WebSocket", "SPDY"} {
		if out, err := ran(t, config, transport, "date"); err != nil {
			t.Errorf("%s: %q, %v", transport, out, err)
		}
		if _, err := ran(t, stranger, transport, "date"); err == nil {
			t.Errorf("%s: a stranger has a console", transport)
		}
	}
	if _, err := shaken(t.Context(), p, 3); err != nil {
		t.Error(err)
	}
	want := map[string]bool{
		"get fruit.example.com/v1 apples/console default/gala 101 ResponseStarted":  true,
		"get fruit.example.com/v1 apples/console default/gala 101 ResponseComplete": true,
		"get fruit.example.com/v1 apples/console default/gala 403 ResponseStarted":  true,
		"get fruit.example.com/v1 apples/console default/gala 403 ResponseComplete": true,

		"create fruit.example.com/v1 apples/console default/gala 101 ResponseStarted":  true,
		"create fruit.example.com/v1 apples/console default/gala 101 ResponseComplete": true,
		"create fruit.example.com/v1 apples/console default/gala 403 ResponseStarted":  true,
		"create fruit.example.com/v1 apples/console default/gala 403 ResponseComplete": true,

		`create fruit.example.com/v1 apples/shake default/gala 201 ResponseComplete {"force":3} {"apples":6}`: true,
	}
	p.Eventually(t, func(context.Context) error { // the end of a console is recorded after its client has it
		got, err := recorded(file)
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			return fmt.Errorf("the record: -want +got:\n%s", diff)
		}
		return err
	})
}

// recorded are the events about sub-resources of apples: what was done, and how it ended, and the
// body and answer where there are.
func recorded(file string) (map[string]bool, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	got := map[string]bool{}
	for line := range bytes.Lines(content) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return got, err
		}
		r := e.ObjectRef
		if r == nil || r.Subresource == "" || e.Stage == auditv1.StageRequestReceived || r.Resource != "apples" {
			continue
		}
		text := fmt.Sprint(e.Verb, " ", r.APIGroup, "/", r.APIVersion, " ", r.Resource, "/", r.Subresource, " ", r.Namespace, "/", r.Name, " ",
			e.ResponseStatus.Code, " ", e.Stage)
		if r.Subresource == "shake" {
			for _, o := range [][]byte{e.RequestObject.Raw, e.ResponseObject.Raw} {
				var fields map[string]any
				if err := json.Unmarshal(o, &fields); err != nil {
					return got, err
				}
				delete(fields, "kind")
				delete(fields, "apiVersion")
				short, err := json.Marshal(fields)
				if err != nil {
					return got, err
				}
				text += " " + string(short)
			}
		}
		got[text] = true
	}
	return got, nil
}
