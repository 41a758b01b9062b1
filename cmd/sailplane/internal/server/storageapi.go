package server

import (
	"cmp"
	"fmt"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storageapi"
)

// storageAPI lends storage to aggregated API servers, if that is wanted.
func (b *build) storageAPI() controlplane.Part {
	c := b.StorageAPI
	if !c.Enabled {
		return controlplane.Parts{}
	}
	_, address := advertised(b.Server)
	part := storageapi.EtcdStorages{
		Address: cmp.Or(c.Address, address), Kubeconfig: c.Kubeconfig,
		Max: storageapi.Limits{
			Keys: c.Limits.Keys, Bytes: c.Limits.Bytes.Value(), ValueBytes: c.Limits.ValueBytes.Value(),
			Watches: c.Limits.Watches, WritesPerSecond: c.Limits.WritesPerSecond,
		},
		Storages: map[string]controlplane.Storage{}, TemporaryDir: b.DataDir,
	}
	for name, n := range map[string]int64{
		"keys": part.Max.Keys, "bytes": part.Max.Bytes, "valueBytes": part.Max.ValueBytes,
		"watches": int64(part.Max.Watches), "writesPerSecond": int64(part.Max.WritesPerSecond),
	} {
		if n <= 0 {
			b.wrong("storageAPI.limits."+name, "found %d, want a number above 0", n)
		}
	}
	for i, s := range c.Storages {
		at := fmt.Sprintf("storageAPI.storages[%d]", i)
		if part.Storages[s.Name] != nil {
			b.wrong(at, "there are two named %q", s.Name)
		}
		described, err := storageOf(config.Storage{
			URL: s.URL, CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile, PasswordFile: s.PasswordFile,
		}, "", "")
		if err != nil {
			b.wrong(at, "%v", err)
			continue
		}
		part.Storages[s.Name] = described
	}
	return part
}
