package pki

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// staleTemp is the age at which a temporary file beside a kubeconfig, which no lock
// guards, counts as left by a crash.
const staleTemp = time.Minute

// WriteKubeconfig writes a kubeconfig with mode 0600 and creates its parent
// folders with mode 0700. It keeps nothing of an existing file, so it replaces
// only one of its own making: one that is empty or has the given contexts,
// clusters and users and no others. Any other file is an error of kind
// [ErrForeign]. A symbolic link stays and the file it leads to is replaced.
func WriteKubeconfig(path string, config *clientcmdapi.Config) error {
	if err := writeKubeconfig(path, config); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}

func writeKubeconfig(path string, config *clientcmdapi.Config) error {
	if path == "" {
		return fmt.Errorf("no path given: %w", fs.ErrInvalid)
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	target := path
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		target = resolved
	}
	upToDate, err := checkExisting(target, config, data)
	if err != nil || upToDate {
		return err
	}
	dir, name := filepath.Dir(target), filepath.Base(target)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	removeTemps(dir, []string{name}, staleTemp)
	return writeFiles(dir, []file{{name: name, data: data}})
}

// checkExisting reports whether the file already has the content to write, and
// returns an error when it may not be replaced.
func checkExisting(path string, config *clientcmdapi.Config, data []byte) (upToDate bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%w: it is not a regular file: choose another path", ErrForeign)
	}
	existing, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	if bytes.Equal(existing, data) {
		return info.Mode().Perm() == 0o600, nil
	}
	if len(bytes.TrimSpace(existing)) == 0 {
		return false, nil
	}
	const remedy = "choose another path or delete the file"
	old, err := clientcmd.Load(existing)
	if err != nil {
		return false, fmt.Errorf("%w: it is not a kubeconfig: %w: %s", ErrForeign, err, remedy)
	}
	if !sameKeys(old.Contexts, config.Contexts) || !sameKeys(old.Clusters, config.Clusters) || !sameKeys(old.AuthInfos, config.AuthInfos) {
		return false, fmt.Errorf("%w: it has other contexts, clusters or users: %s", ErrForeign, remedy)
	}
	return false, nil
}

// sameKeys reports whether two maps have the same keys.
func sameKeys[V any](a, b map[string]V) bool {
	return maps.EqualFunc(a, b, func(V, V) bool { return true })
}
