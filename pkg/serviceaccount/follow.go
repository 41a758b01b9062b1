package serviceaccount

import (
	"bytes"
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// followEvery is how soon a change of the key file is noticed. It is read, not
// watched: a watch misses files that are mounted, linked or replaced.
const followEvery = time.Second

// follow puts changed keys into effect until the context ends.
func (i *issuer) follow(ctx context.Context, _ *controlplane.Plane) error {
	if i.file() == "" {
		return nil
	}
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			told = i.look(ctx, told)
		}
	}
}

// look reads the key file again. One that cannot be used changes nothing, and
// is logged unless that was told before. It returns what was told last.
func (i *issuer) look(ctx context.Context, told string) string {
	now := i.now.Load()
	if now == nil {
		return told // the plane still starts
	}
	log := klog.FromContext(ctx)
	keys, err := readKeys(i.file())
	switch {
	case err != nil && err.Error() == told:
		return told
	case err != nil:
		log.Error(err, "Kept the service account keys that a file said before", "file", i.file())
		return err.Error()
	case bytes.Equal(keys.source, now.keys.source):
		return ""
	}
	i.now.Store(&running{keys: keys, core: now.core, metadata: now.metadata})
	log.Info("Loaded changed service account keys", "file", i.file(), "signs", keys.signer.id, "keys", len(keys.all))
	return ""
}
