package envtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// TestSideBySide starts environments at the same time, each with its own objects.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	const count = 4
	var all sync.WaitGroup
	clients, errs := make([]client.Client, count), make([]error, count)
	for i := range count {
		env := &envtest.Environment{}
		t.Cleanup(func() {
			if err := env.Stop(); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			config, err := env.Start()
			if err == nil {
				clients[i], err = client.New(config, client.Options{})
			}
			if err == nil {
				err = clients[i].Create(t.Context(), configMap("default", fmt.Sprintf("only-%d", i)))
			}
			errs[i] = err
		})
	}
	all.Wait()
	for i, c := range clients {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		var list corev1.ConfigMapList
		if err := c.List(t.Context(), &list, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
		for _, m := range list.Items {
			if strings.HasPrefix(m.Name, "only-") && m.Name != fmt.Sprintf("only-%d", i) {
				t.Errorf("environment %d has %s, which is of another one", i, m.Name)
			}
		}
	}
}

// TestStopLeavesNothing looks for processes, listeners and files after a stop.
func TestStopLeavesNothing(t *testing.T) {
	t.Parallel()
	env := &envtest.Environment{}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	c := clientOf(t, config)
	w, err := c.Watch(t.Context(), &corev1.ConfigMapList{}) // which is open when it stops
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	folders := []string{env.ControlPlane.APIServer.CertDir, env.ControlPlane.Etcd.DataDir}
	addresses := []string{strings.TrimPrefix(config.Host, "https://"), env.ControlPlane.Etcd.URL.Host}
	if err := env.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if _, err := os.Stat(folder); !os.IsNotExist(err) {
			t.Errorf("folder %s is still there (%v)", folder, err)
		}
		if p := processes(t, folder); p != nil {
			t.Errorf("processes %v still run", p)
		}
	}
	for _, address := range addresses {
		if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address); err == nil {
			conn.Close()
			t.Errorf("somebody still listens at %s", address)
		}
	}
}

// processes are those with an argument, where the system tells.
func processes(t *testing.T, argument string) []string {
	t.Helper()
	if runtime.GOOS != "linux" {
		return nil
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(commands) == 0 {
		t.Fatalf("no processes in /proc (%v)", err)
	}
	var found []string
	for _, file := range commands {
		line, err := os.ReadFile(file)
		if err == nil && bytes.Contains(line, []byte(argument)) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// TestRestart stops the API server and starts it again with the same etcd.
func TestRestart(t *testing.T) {
	t.Parallel()
	env := &envtest.Environment{}
	_, c := start(t, env)
	if err := c.Create(t.Context(), configMap("default", "kept")); err != nil {
		t.Fatal(err)
	}
	server := env.ControlPlane.GetAPIServer()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	admin, err := env.ControlPlane.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, &rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := clientOf(t, admin.Config()).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "kept"}, &corev1.ConfigMap{}); err != nil {
		t.Errorf("the object: %v, want it kept by etcd", err)
	}
}

// TestWithoutGarbageCollection has a foreground deletion wait for nobody, as
// nobody would end it.
func TestWithoutGarbageCollection(t *testing.T) {
	t.Parallel()
	env := &envtest.Environment{}
	env.ControlPlane.GetAPIServer().Configure().Set("enable-garbage-collector", "false")
	_, c := start(t, env)
	owner, owned := configMap("default", "owner"), configMap("default", "owned")
	if err := c.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	owned.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true),
	}}
	if err := c.Create(t.Context(), owned); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), owner, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	if err := gone(c.Get(t.Context(), client.ObjectKeyFromObject(owner), owner)); err != nil {
		t.Errorf("the owner: %v, want it gone at once", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(owned), owned); err != nil {
		t.Errorf("what it owned: %v, want it left alone", err)
	}
}

// TestFlags gives flags as suites do.
func TestFlags(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("s3cret,ann,1,\"system:masters\"\n"), 0o644); err != nil { //nolint:gosec // as suites do
		t.Fatal(err)
	}
	env := &envtest.Environment{}
	var log output
	server := env.ControlPlane.GetAPIServer()
	server.Err = &log
	server.Configure().
		Set("token-auth-file", tokens).
		Append("enable-admission-plugins", "PodSecurity", "LimitRanger").
		Append("disable-admission-plugins", "NamespaceLifecycle").
		Set("feature-gates", "NoSuchGate=true").
		Set("runtime-config", "api/all=true").
		Set("kubelet-timeout", "5s")
	config, _ := start(t, env)
	ann := rest.AnonymousClientConfig(config)
	ann.BearerToken = "s3cret"
	if err := clientOf(t, ann).List(t.Context(), &corev1.SecretList{}); err != nil {
		t.Errorf("with a token of the file: %v", err)
	}
	ann.BearerToken = "guessed"
	if _, err := client.New(ann, client.Options{}); err == nil {
		if err := clientOf(t, ann).List(t.Context(), &corev1.SecretList{}); err == nil {
			t.Error("with another token: no error")
		}
	}
	// What a process writes takes its own way here.
	eventually(t, "all warnings are in the log", func(context.Context) error {
		if n := strings.Count(log.String(), "warning:"); n < 5 {
			return fmt.Errorf("%d of 5 are", n)
		}
		return nil
	})
	for _, want := range []string{
		"warning: --runtime-config is not supported and has no effect\n",
		"warning: --kubelet-timeout is not supported and has no effect\n",
		"warning: --feature-gates NoSuchGate=true has no effect: feature gates keep their defaults\n",
		"warning: --enable-admission-plugins PodSecurity has no effect: there is no such plugin\n",
		"warning: --disable-admission-plugins NamespaceLifecycle has no effect: it is always on\n",
	} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%q is %d times in the log, want once:\n%s", want, n, &log)
		}
	}
	if n := strings.Count(log.String(), "warning:"); n != 5 {
		t.Errorf("%d warnings, want 5: flags that have an effect need none:\n%s", n, &log)
	}
}
