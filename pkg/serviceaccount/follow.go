package serviceaccount

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
	"github.com/sailplane-dev/sailplane/pkg/internal/secretfile"
)

// source is the key file, which a running issuer follows.
func (i *issuer) source() follow.Source {
	return follow.Source{What: "service account keys", File: i.file(), Read: secretfile.Read, Use: i.use}
}

// check reads KeyFile. What Dir has is the server's own, and read when it starts.
func (i *issuer) check() error {
	if i.KeyFile == "" {
		return nil
	}
	_, err := follow.Parse("field KeyFile", i.source(), parseKeys)
	return err
}

// follow puts changed keys into effect until the context ends.
func (i *issuer) follow(ctx context.Context, _ *controlplane.Plane) error {
	if i.file() == "" {
		return nil
	}
	f := &follow.File{Source: i.source()}
	f.Begun(i.now.Load().keys.source)
	return f.Run(ctx)
}

// use puts the keys of a file into effect.
func (i *issuer) use(ctx context.Context, content []byte) error {
	keys, err := parseKeys(content)
	if err != nil {
		return fmt.Errorf("read service account keys from %s: %w", i.file(), err)
	}
	now := i.now.Load()
	i.now.Store(&running{keys: keys, core: now.core, metadata: now.metadata})
	klog.FromContext(ctx).Info("Service account tokens are now signed with other keys", "signs", keys.signer.id, "keys", len(keys.all))
	return nil
}
