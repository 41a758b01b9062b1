//go:build unix

package life

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// kubelet has the Secrets and ConfigMaps of the namespace in files, and changes them with the objects: dir/NAME/KEY. As
// in a pod, all files of an object change at once.
type kubelet struct{ dir string }

// mount has the files of the EtcdStorage when it returns, and follows the objects until the test ends.
func mount(t *testing.T, config *rest.Config) *kubelet {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	k := &kubelet{dir: t.TempDir()}
	write := func(o any) {
		if err := k.write(o); err != nil {
			t.Error(err)
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: write, UpdateFunc: func(_, o any) { write(o) }}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().Secrets().Informer(), factory.Core().V1().ConfigMaps().Informer(),
	} {
		_, err := informer.AddEventHandler(handler)
		must(t, err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	until(t, "the files are there", func(context.Context) error {
		_, err1 := os.Stat(filepath.Join(k.dir, secret, corev1.TLSCertKey))
		_, err2 := os.Stat(filepath.Join(k.dir, caMap, "ca.crt"))
		return errors.Join(err1, err2)
	})
	return k
}

// write writes an object.
func (k *kubelet) write(o any) error {
	switch o := o.(type) {
	case *corev1.Secret:
		return replace(filepath.Join(k.dir, o.Name), o.Data)
	case *corev1.ConfigMap:
		content := map[string][]byte{}
		for key, value := range o.Data {
			content[key] = []byte(value)
		}
		return replace(filepath.Join(k.dir, o.Name), content)
	}
	return fmt.Errorf("mount a %T", o)
}

// replace writes files to a folder, whose links lead to the old ones until all new ones are there.
func replace(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(dir, "..")
	if err != nil {
		return err
	}
	for key, content := range files {
		if err := os.WriteFile(filepath.Join(fresh, key), content, 0o600); err != nil {
			return err
		}
		err := os.Symlink(filepath.Join("..data", key), filepath.Join(dir, key))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	data := filepath.Join(dir, "..data")
	old, _ := os.Readlink(data) // there is none at first
	if err := os.Symlink(filepath.Base(fresh), data+".new"); err != nil {
		return err
	}
	if err := os.Rename(data+".new", data); err != nil || old == "" {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, old))
}

// certificate is that with which the sample-apiserver connects.
func (k *kubelet) certificate(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(k.dir, secret, corev1.TLSCertKey))
	must(t, err)
	return string(content)
}
