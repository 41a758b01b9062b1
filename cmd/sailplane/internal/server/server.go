package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/encryption"
	"github.com/sailplane-dev/sailplane/pkg/extend"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
	"github.com/sailplane-dev/sailplane/pkg/insight"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/quota"
	"github.com/sailplane-dev/sailplane/pkg/tracing"
)

// Builder returns the builder of a server, or everything that is wrong with the
// configuration, and the storage, which the builder has already. at says where the
// value of a field comes from, for errors: [config.Document.At].
func Builder(name string, l *Live, at func(field string) string) (*controlplane.Builder, controlplane.Storage, error) {
	b := newBuild(l, at)
	storage, err := storageOf(b.Storage, b.DataDir, os.Getenv(PasswordVariable))
	b.failed(err)
	parts, bounds := b.parts(), b.bounds()
	if err := errors.Join(b.errs...); err != nil {
		return nil, nil, err
	}
	return controlplane.New(name).
		Listen(b.Listen).
		Storage(storage).
		Prefix(b.Storage.Prefix).
		History(b.Storage.History.Duration).
		Drain(b.Serving.Drain.Duration).
		Limits(bounds).
		With(parts), storage, nil
}

// build makes the parts of a configuration, and collects what is wrong with it.
type build struct {
	*config.Server
	live *Live
	at   func(field string) string
	errs []error
}

func newBuild(l *Live, at func(field string) string) *build {
	return &build{Server: l.now.Load(), live: l, at: at}
}

// parts are those of a server, in order.
func (b *build) parts() controlplane.Parts {
	b.check()
	deny, allow := b.reach()
	return controlplane.Parts{
		b.authentication(), b.authorization(), b.resources(), b.definitions(),
		aggregator.APIServices{
			Servers: b.servers(), Deny: deny, Allow: allow, Dir: b.proxyDir(), Patience: b.Aggregation.Patience.Duration,
		},
		extend.CreateReviews{},
		b.located(), b.admission(), b.limits(),
		b.audit(), b.storageAPI(), b.rest(),
	}
}

// check checks the values that no part does.
func (b *build) check() {
	for field, d := range map[string]metav1.Duration{
		"storage.history": b.Storage.History, "backup.every": b.Backup.Every,
		"serving.drain": b.Serving.Drain, "aggregation.patience": b.Aggregation.Patience,
	} {
		if d.Duration <= 0 {
			b.wrong(field, "want a duration above 0, such as 5m")
		}
	}
	if _, port, err := net.SplitHostPort(b.Listen); err != nil {
		b.wrong("listen", "%v: want HOST:PORT, such as 127.0.0.1:6443", err)
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		b.wrong("listen", "%q: the port is not a number up to 65535", b.Listen)
	}
	if v := b.Log.Verbosity; v < 0 || v > maxVerbosity {
		b.wrong("log.verbosity", "found %d, want a number from 0 to %d", v, maxVerbosity)
	}
	switch m := fairness.Mode(b.Limits.Mode); m {
	case fairness.Enforce, fairness.Warn, fairness.Off:
	default:
		b.wrong("limits.mode", "found %q, want %s, %s or %s", m, fairness.Enforce, fairness.Warn, fairness.Off)
	}
	if f := b.Log.Format; f != config.Text && f != config.JSON {
		b.wrong("log.format", "found %q, want %s or %s", f, config.Text, config.JSON)
	}
}

const maxVerbosity = 10

// wrong notes a mistake in a field.
func (b *build) wrong(field, format string, values ...any) {
	b.failed(mistake{field, fmt.Sprintf(format, values...)})
}

// failed notes an error.
func (b *build) failed(err error) {
	var m mistake
	if errors.As(err, &m) {
		err = fmt.Errorf("%s: %s", b.at(m.field), m.text)
	}
	if err != nil {
		b.errs = append(b.errs, err)
	}
}

// mistake is what is wrong with a field.
type mistake struct{ field, text string }

func (m mistake) Error() string { return m.field + ": " + m.text }

// in is a path in the data directory; empty if there is none.
func (b *build) in(name string) string {
	if b.DataDir == "" {
		return ""
	}
	return filepath.Join(b.DataDir, name)
}

// definitions serves CRDs, those of a directory from the start.
func (b *build) definitions() controlplane.Part {
	l := b.Limits.Definitions
	part := crd.Definitions{Limits: crd.Limits{
		Schemas: orUnlimited(l.Schemas), Rules: orUnlimited(l.Rules), AllSchemas: orUnlimited(l.AllSchemas),
	}}
	part.Deny, part.Allow = b.reach()
	if b.CRDs == "" {
		return part
	}
	if info, err := os.Stat(b.CRDs); err != nil {
		b.wrong("crds", "%v", err)
	} else if !info.IsDir() {
		b.wrong("crds", "%s is not a directory", b.CRDs)
	}
	part.FS = os.DirFS(b.CRDs)
	return part
}

// rest is what has no section of its own, or one of a field or two.
func (b *build) rest() controlplane.Part {
	parts := controlplane.Parts{insight.Status{}, insight.Maintenance{}, backup.Endpoint{}}
	if b.GarbageCollection {
		parts = append(parts, lifecycle.GarbageCollection{})
	}
	if b.Encryption.ConfigFile != "" {
		parts = append(parts, encryption.AtRest{ConfigFile: b.Encryption.ConfigFile})
	}
	if b.Backup.Directory != "" {
		parts = append(parts, backup.Schedule{Dir: b.Backup.Directory, Every: b.Backup.Every.Duration, Keep: b.Backup.Keep})
	}
	if b.Tracing.Endpoint != "" {
		parts = append(parts, tracing.OTLP{Endpoint: b.Tracing.Endpoint, SamplesPerMillion: b.Tracing.SamplesPerMillion})
	}
	if b.Profiling {
		parts = append(parts, middleware.Profiling{})
	}
	return parts
}

// Plugin is an admission plugin that can be switched on and off, by the name that
// it has in kube-apiserver.
type Plugin struct {
	Name string
	// Off says that kube-apiserver has it only if it is enabled.
	Off  bool
	part controlplane.Part
}

// Plugins are those that exist, in the order of kube-apiserver.
func Plugins() []Plugin { return newBuild(NewLive(&config.Server{}, false), nil).plugins() }

func (b *build) plugins() []Plugin {
	login := b.Admission.Webhooks.ConfigFile
	deny, allow := b.reach()
	return []Plugin{
		{Name: "LimitRanger", part: quota.LimitRanges{}},
		{Name: "OwnerReferencesPermissionEnforcement", part: lifecycle.OwnerPermissions{}, Off: true},
		{Name: "MutatingAdmissionPolicy", part: admit.MutatingPolicies{}},
		{Name: "MutatingAdmissionWebhook", part: admit.MutatingWebhooks{Deny: deny, Allow: allow, ConfigFile: login}},
		{Name: "ValidatingAdmissionPolicy", part: admit.ValidatingPolicies{}},
		{Name: "ValidatingAdmissionWebhook", part: admit.ValidatingWebhooks{Deny: deny, Allow: allow, ConfigFile: login}},
		{Name: "ResourceQuota", part: quota.ResourceQuotas{}},
	}
}
