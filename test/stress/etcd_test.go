package stress

import (
	"path/filepath"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
)

// addEtcd adds the embedded etcd.
func addEtcd(all map[string]store) {
	all["etcd"] = store{
		at:         func(dir string) controlplane.Storage { return etcd.Embedded{Dir: filepath.Join(dir, "etcd")} },
		persistent: true, files: []string{"etcd"},
	}
}
