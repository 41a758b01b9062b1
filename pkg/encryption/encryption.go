// Package encryption is the part that keeps objects encrypted in the storage:
//
//   - [AtRest]: what an EncryptionConfiguration of Kubernetes says, with keys in
//     the file (secretbox, aesgcm, aescbc) or in a key service (kms v2)
//
// A transformer stands between the codec and the storage, for resources of
// groups, typed groups and CRDs alike. The watch cache and everything above it
// see plain objects, and so does the feed, which reads the storage on its own.
package encryption

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// AtRest encrypts objects before they are stored and decrypts them when they are
// read, as kube-apiserver does with --encryption-provider-config:
// https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/
//
// A change of the file takes effect within a minute; one that cannot be used is
// logged, counted in a metric, and changes nothing. Objects that are stored
// already keep the form they have until they are written again.
//
// While a KMS provider is not healthy, /readyz and /healthz fail (check
// "kms-providers") and /livez does not. A server starts without it; objects it
// encrypted cannot be read until it is there.
type AtRest struct {
	// ConfigFile is an EncryptionConfiguration of apiserver.config.k8s.io/v1.
	// Resources may be "secrets", "gadgets.example.com", "*." (of the core
	// group), "*.example.com" or "*.*". The file has keys in it: users other
	// than its owner and group must have no permissions on it. Build checks it, and
	// asks no key service. Required.
	ConfigFile string
}

// PartName implements the name errors use.
func (AtRest) PartName() string { return "encryption" }

// Install implements controlplane.Part.
func (AtRest) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares the transformation of stored values.
func (a AtRest) InstallServer(p *controlplane.ServerPlan) error {
	if a.ConfigFile == "" {
		return errors.New("field ConfigFile: is empty: name a file with an EncryptionConfiguration")
	}
	p.Root().Read(func() error {
		if err := check(a.ConfigFile); err != nil {
			return fmt.Errorf("field ConfigFile: %w", err)
		}
		return nil
	})
	p.Transform("encryption at rest", a.start)
	return nil
}

// identity names this API server in metrics of upstream, as a hash.
const identity = "sailplane"

// start reads the configuration, connects to its key services, and follows the
// file until the transformation is stopped.
func (a AtRest) start(ctx context.Context) (*controlplane.Transformation, error) {
	life, end := context.WithCancel(ctx)
	providers, closeProviders := context.WithCancel(life) // the file's first ones; the next have their own
	loaded, err := encryptionconfig.LoadEncryptionConfig(providers, a.ConfigFile, true, identity)
	if err == nil && len(loaded.HealthChecks) != 1 {
		err = fmt.Errorf("it has %d health checks, want one", len(loaded.HealthChecks))
	}
	if err != nil {
		closeProviders()
		end()
		return nil, explain(a.ConfigFile, err)
	}
	metrics.RecordEncryptionConfigLastConfigInfo(identity, loaded.EncryptionFileContentHash)
	transformers := encryptionconfig.NewDynamicTransformers(
		loaded.Transformers, loaded.HealthChecks[0], closeProviders, loaded.KMSCloseGracePeriod)
	reload := controller.NewDynamicEncryptionConfiguration(
		"encryption-configuration", a.ConfigFile, transformers, loaded.EncryptionFileContentHash, identity)
	done := make(chan struct{})
	go func() { defer close(done); reload.Run(life) }()
	return &controlplane.Transformation{
		Resources: transformers,
		Checks:    []healthz.HealthChecker{transformers},
		Stop:      func() { end(); <-done },
	}, nil
}

// Transformers returns what decrypts stored values as a file says, for those who read them without a
// server. It does not follow the file.
func Transformers(ctx context.Context, file string) (transformers value.ResourceTransformers, stop func(), err error) {
	if err := check(file); err != nil {
		return nil, nil, err
	}
	ctx, stop = context.WithCancel(ctx)
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, file, false, identity)
	if err != nil {
		stop()
		return nil, nil, explain(file, err)
	}
	return encryptionconfig.StaticTransformers(loaded.Transformers), stop, nil
}
