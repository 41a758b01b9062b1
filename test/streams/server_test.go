package streams

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/test/program"
)

// kubectl is where the program is.
var kubectl string

func TestMain(m *testing.M) {
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) (err error) {
		kubectl, err = program.Kubectl(ctx, dir)
		return err
	}}.Run())
}

// patience is how long a test waits for what takes milliseconds, on a busy machine.
const patience = 2 * time.Minute

// pods are what the functions of a server serve.
type pods struct {
	kubeconfig string
	dir        string   // where the commands of "exec" run
	backend    *url.URL // what ports are forwarded to
	stop       func()   // the server
	config     *rest.Config
	followed   chan struct{} // gets a value when somebody follows a log no more
}

// serve starts a server with one running pod, "web".
func serve(t *testing.T) *pods {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(hello))
	t.Cleanup(backend.Close)
	u, err := url.Parse(backend.URL)
	must(t, err)
	p := &pods{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), dir: t.TempDir(), backend: u, followed: make(chan struct{}, 10)}
	server, err := controlplane.New("streams").Listen("127.0.0.1:0").Storage(memory.Store{}).With(
		authn.Admin{Kubeconfig: p.kubeconfig}, core.Namespaces{}, apples(),
		kube.Pods(
			apis.PrepareForCreate(func(_ context.Context, p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }),
			apis.Stream("log", p.log), apis.Exec("exec", p.exec), apis.Attach("attach", p.attach),
			apis.PortForward("portforward", p.forward),
			apis.Proxy("proxy", func(context.Context, *corev1.Pod) (*url.URL, http.RoundTripper, error) { return u, nil, nil }),
		),
	).Build()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("run: %v", err)
			}
		case <-time.After(patience):
			t.Error("the server does not stop")
		}
	})
	t.Cleanup(p.stop)
	select {
	case <-server.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("run: %v", err)
	case <-time.After(patience):
		t.Fatal("the server is not ready")
	}
	p.config, err = clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	must(t, err)
	client, err := kubernetes.NewForConfig(p.config)
	must(t, err)
	_, err = client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none", Stdin: true, TTY: true}}},
	}, metav1.CreateOptions{})
	must(t, err)
	return p
}

// hello answers with the path and the length of the body; "/fail" fails.
func hello(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/fail" {
		w.WriteHeader(http.StatusInternalServerError)
	}
	if n, _ := io.Copy(io.Discard, r.Body); n > 0 {
		fmt.Fprint(w, n, " bytes ")
	}
	fmt.Fprint(w, "hello ", r.URL.Path)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// log says one line, and follows without an end.
func (p *pods) log(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	first := fmt.Sprintf("%s/%s starts\n", pod.Name, o.Container)
	if !o.Follow {
		return io.NopCloser(strings.NewReader(first)), nil
	}
	context.AfterFunc(ctx, func() { p.followed <- struct{}{} })
	r, w := io.Pipe()
	go func() {
		_, err := io.WriteString(w, first)
		for tick := time.NewTicker(50 * time.Millisecond); err == nil; <-tick.C {
			_, err = io.WriteString(w, "tick\n")
		}
	}()
	return r, nil
}

// exec runs commands on this machine, with a terminal of their own if the client has one.
func (p *pods) exec(ctx context.Context, _ *corev1.Pod, o *corev1.PodExecOptions, s apis.Streams) error {
	c := exec.CommandContext(ctx, o.Command[0], o.Command[1:]...)
	c.Dir = p.dir
	if s.TTY {
		return inTerminal(c, s)
	}
	c.Stdout, c.Stderr = s.Stdout, s.Stderr
	in, err := c.StdinPipe() // not Stdin: Wait would wait for its end
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(in, s.Stdin)
		_ = in.Close()
	}()
	return c.Wait()
}

func inTerminal(c *exec.Cmd, s apis.Streams) error {
	first := <-s.Resize
	terminal, err := pty.StartWithSize(c, &pty.Winsize{Rows: first.Height, Cols: first.Width})
	if err != nil {
		return err
	}
	defer terminal.Close()
	go func() {
		for size := range s.Resize {
			_ = pty.Setsize(terminal, &pty.Winsize{Rows: size.Height, Cols: size.Width})
		}
	}()
	go func() { _, _ = io.Copy(terminal, s.Stdin) }()
	_, _ = io.Copy(s.Stdout, terminal) // fails when the command has ended
	return c.Wait()
}

// attach repeats what it is told, in capitals.
func (p *pods) attach(_ context.Context, _ *corev1.Pod, _ *corev1.PodAttachOptions, s apis.Streams) error {
	told := make([]byte, 5)
	if _, err := io.ReadFull(s.Stdin, told); err != nil {
		return err
	}
	_, err := fmt.Fprintln(s.Stdout, strings.ToUpper(string(told)))
	return err
}

// forward connects to the backend.
func (p *pods) forward(ctx context.Context, _ *corev1.Pod, port uint16, conn io.ReadWriteCloser) error {
	if port != 80 {
		return fmt.Errorf("nothing listens at %d", port)
	}
	to, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.backend.Host)
	if err != nil {
		return err
	}
	defer to.Close()
	defer context.AfterFunc(ctx, func() { _ = to.Close() })()
	go func() { _, _ = io.Copy(to, conn) }()
	_, err = io.Copy(conn, to)
	return err
}

// kubectl is a command, which speaks the transport: "WebSocket" or "SPDY".
func (p *pods) kubectl(t *testing.T, transport string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), kubectl, args...)
	websockets := fmt.Sprint(transport == "WebSocket")
	c.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig, "HOME="+t.TempDir(),
		"KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+websockets)
	return c
}

// onEveryTransport runs a test with each.
func onEveryTransport(t *testing.T, p *pods, test func(t *testing.T, kubectl func(args ...string) *exec.Cmd)) {
	t.Helper()
	for _, transport := range []string{"WebSocket", "SPDY"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			test(t, func(args ...string) *exec.Cmd { return p.kubectl(t, transport, args...) })
		})
	}
}
