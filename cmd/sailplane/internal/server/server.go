package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/encryption"
	"github.com/sailplane-dev/sailplane/pkg/insight"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/quota"
	"github.com/sailplane-dev/sailplane/pkg/tracing"
)

// Builder returns the builder of a server, or everything that is wrong with the
// configuration, and the storage, which the builder has already. at says where the
// value of a field comes from, for errors: [config.Document.At].
func Builder(name string, c *config.Server, at func(field string) string) (*controlplane.Builder, controlplane.Storage, error) {
	b := &build{Server: c, at: at}
	storage, err := storageOf(c.Storage, c.DataDir, os.Getenv(PasswordVariable))
	b.failed(err)
	if c.Storage.History.Duration <= 0 {
		b.wrong("storage.history", "want a duration above 0, such as 5m")
	}
	if _, port, err := net.SplitHostPort(c.Listen); err != nil {
		b.wrong("listen", "%v: want HOST:PORT, such as 127.0.0.1:6443", err)
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		b.wrong("listen", "%q: the port is not a number up to 65535", c.Listen)
	}
	if v := c.Log.Verbosity; v < 0 || v > maxVerbosity {
		b.wrong("log.verbosity", "found %d, want a number from 0 to %d", v, maxVerbosity)
	}
	if f := c.Log.Format; f != "text" && f != "json" {
		b.wrong("log.format", "found %q, want text or json", f)
	}
	parts := controlplane.Parts{
		b.authentication(), b.authorization(), b.resources(), b.definitions(),
		aggregator.APIServices{},
		b.admission(), b.limits(),
		b.audit(), b.rest(),
	}
	if err := errors.Join(b.errs...); err != nil {
		return nil, nil, err
	}
	return controlplane.New(name).
		Listen(c.Listen).
		Storage(storage).
		Prefix(c.Storage.Prefix).
		History(c.Storage.History.Duration).
		With(parts), storage, nil
}

const maxVerbosity = 10

// build makes the parts of a configuration, and collects what is wrong with it.
type build struct {
	*config.Server
	at   func(field string) string
	errs []error
}

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
	part := crd.Definitions{Deny: b.denied()}
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
	parts := controlplane.Parts{insight.Status{}}
	if b.GarbageCollection {
		parts = append(parts, lifecycle.GarbageCollection{})
	}
	if b.Encryption.ConfigFile != "" {
		parts = append(parts, encryption.AtRest{ConfigFile: b.Encryption.ConfigFile})
	}
	if b.Tracing.Endpoint != "" {
		parts = append(parts, tracing.OTLP{Endpoint: b.Tracing.Endpoint, SamplesPerMillion: b.Tracing.SamplesPerMillion})
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
func Plugins() []Plugin { return (&build{Server: &config.Server{}}).plugins() }

func (b *build) plugins() []Plugin {
	deny, login := b.denied(), b.Admission.Webhooks.ConfigFile
	return []Plugin{
		{Name: "LimitRanger", part: quota.LimitRanges{}},
		{Name: "OwnerReferencesPermissionEnforcement", part: lifecycle.OwnerPermissions{}, Off: true},
		{Name: "MutatingAdmissionPolicy", part: admit.MutatingPolicies{}},
		{Name: "MutatingAdmissionWebhook", part: admit.MutatingWebhooks{Deny: deny, ConfigFile: login}},
		{Name: "ValidatingAdmissionPolicy", part: admit.ValidatingPolicies{}},
		{Name: "ValidatingAdmissionWebhook", part: admit.ValidatingWebhooks{Deny: deny, ConfigFile: login}},
		{Name: "ResourceQuota", part: quota.ResourceQuotas{}},
	}
}
