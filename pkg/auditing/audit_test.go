package auditing_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// act does one thing of every kind.
func act(t *testing.T, client *kubernetes.Clientset) {
	t.Helper()
	ctx := t.Context()
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta("plan")}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create: %v", err)
	}
	secret := &corev1.Secret{ObjectMeta: meta("key"), StringData: map[string]string{"password": "hunter2"}}
	if _, err := client.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create: %v", err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Get(ctx, "plan", metav1.GetOptions{}); err != nil {
		t.Fatalf("get: %v", err)
	}
	if _, err := client.Discovery().ServerVersion(); err != nil {
		t.Fatalf("version: %v", err)
	}
	if err := client.CoreV1().ConfigMaps("default").Delete(ctx, "absent", metav1.DeleteOptions{}); err == nil {
		t.Fatal("what does not exist was deleted")
	}
}

// told are the events of a user in a log, each in a line.
func told(t *testing.T, log []byte, name string) []string {
	t.Helper()
	var got []string
	for lines := bufio.NewScanner(bytes.NewReader(log)); lines.Scan(); {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("line %s: %v", lines.Text(), err)
		}
		if e.User.Username == name {
			got = append(got, tell(&e))
		}
	}
	return got
}

func tell(e *auditv1.Event) string {
	object := e.RequestURI
	if r := e.ObjectRef; r != nil {
		object = strings.Join([]string{r.Namespace, r.Resource, r.Name}, "/")
	}
	code := ""
	if e.ResponseStatus != nil {
		code = http.StatusText(int(e.ResponseStatus.Code))
	}
	return strings.Join([]string{string(e.Level), string(e.Stage), e.Verb, object, code}, " ")
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestLog(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		log    auditing.Log
		want   []string
		secret bool
	}{
		"default": {
			reason: "writes are recorded when they are answered, with neither bodies nor reads",
			want: []string{
				"Metadata ResponseComplete create default/configmaps/plan Created",
				"Metadata ResponseComplete create default/secrets/key Created",
				"Metadata ResponseComplete delete default/configmaps/absent Not Found",
			},
		},
		"batch": {
			reason: "what is buffered is written when the server stops",
			log:    auditing.Log{Mode: auditing.Batch},
			want: []string{
				"Metadata ResponseComplete create default/configmaps/plan Created",
				"Metadata ResponseComplete create default/secrets/key Created",
				"Metadata ResponseComplete delete default/configmaps/absent Not Found",
			},
		},
		"policy": {
			reason: "a policy of one's own decides, and may ask for bodies",
			log: auditing.Log{Mode: auditing.BlockingStrict, Policy: &auditv1.Policy{Rules: []auditv1.PolicyRule{
				{Level: auditv1.LevelRequest, Resources: []auditv1.GroupResources{{Resources: []string{"secrets"}}}},
				{Level: auditv1.LevelMetadata, Verbs: []string{"get"}, OmitStages: []auditv1.Stage{auditv1.StageRequestReceived}},
			}}},
			want: []string{
				"Request RequestReceived create default/secrets/ ",
				"Request ResponseComplete create default/secrets/key Created",
				"Metadata ResponseComplete get default/configmaps/plan OK",
				"Metadata ResponseComplete get /version OK",
			},
			secret: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.log.Path = filepath.Join(t.TempDir(), "logs", "audit.log")
			client, stop := serve(t, "ada", tc.log)
			act(t, client)
			stop()
			data := read(t, tc.log.Path)
			if diff := cmp.Diff(tc.want, told(t, data, "ada")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if got := bytes.Contains(data, []byte("hunter2")) || bytes.Contains(data, []byte("aHVudGVyMg")); got != tc.secret {
				t.Errorf("%s: the log has the secret: %v, want %v", tc.reason, got, tc.secret)
			}
			if info, err := os.Stat(tc.log.Path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the log has mode %v, %v: want 0600", info.Mode(), err)
			}
			if len(told(t, data, "")) > 0 {
				t.Error("requests of nobody were recorded, though none was made")
			}
		})
	}
}

func TestLegacy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	client, _ := serve(t, "ada", auditing.Log{Path: path, Format: auditing.Legacy})
	act(t, client)
	if got := string(read(t, path)); !strings.Contains(got, `method="create" user="ada"`) {
		t.Errorf("an event is not there when its request was answered: %s", got)
	}
}

// TestTwo has two logs with policies of their own: what one is told in full, the
// other must not have.
func TestTwo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bodies := auditing.Log{Name: "bodies", Path: filepath.Join(dir, "bodies.log"), Policy: &auditv1.Policy{Rules: []auditv1.PolicyRule{
		{Level: auditv1.LevelRequestResponse, Users: []string{"ada"}, Resources: []auditv1.GroupResources{{Resources: []string{"secrets"}}}},
	}}}
	plain := auditing.Log{Path: filepath.Join(dir, "plain.log")}
	client, stop := serve(t, "ada", bodies, plain)
	act(t, client)
	stop()
	if diff := cmp.Diff([]string{
		"RequestResponse RequestReceived create default/secrets/ ",
		"RequestResponse ResponseComplete create default/secrets/key Created",
	}, told(t, read(t, bodies.Path), "ada")); diff != "" {
		t.Errorf("the log with bodies (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"Metadata ResponseComplete create default/configmaps/plan Created",
		"Metadata ResponseComplete create default/secrets/key Created",
		"Metadata ResponseComplete delete default/configmaps/absent Not Found",
	}, told(t, read(t, plain.Path), "ada")); diff != "" {
		t.Errorf("the log without (-want +got):\n%s", diff)
	}
	if data := read(t, plain.Path); bytes.Contains(data, []byte("aHVudGVyMg")) || bytes.Contains(data, []byte("responseObject")) {
		t.Errorf("the log without bodies has one: %s", data)
	}
}

// TestUnknown has a caller whom the server does not know: an attempt to write is
// recorded, whether one log listens or several.
func TestUnknown(t *testing.T) {
	t.Parallel()
	want := []string{"Metadata ResponseStarted create default/configmaps/ Unauthorized"}
	for name, more := range map[string]controlplane.Part{"one": nil, "two": auditing.Log{Name: "other", Path: os.DevNull}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "audit.log")
			parts := []controlplane.Part{auditing.Log{Path: path}}
			if more != nil {
				parts = append(parts, more)
			}
			client, stop := serve(t, "", parts...)
			_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta("plan")}, metav1.CreateOptions{})
			if !apierrors.IsUnauthorized(err) {
				t.Errorf("got error %v: want 401", err)
			}
			stop()
			if diff := cmp.Diff(want, told(t, read(t, path), "")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old := filepath.Join(dir, "audit-2001-02-03T04-05-06.789.log")
	other := filepath.Join(dir, "audit-notes.log")
	for _, name := range []string{old, other} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client, stop := serve(t, "ada", auditing.Log{Path: filepath.Join(dir, "audit.log"), MaxSize: 1, MaxBackups: 3, MaxAge: time.Hour})
	for range 4 {
		_ = client.CoreV1().ConfigMaps("default").Delete(t.Context(), "absent", metav1.DeleteOptions{})
	}
	stop()
	var logs []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && path != other {
			logs = append(logs, path)
			if data := read(t, path); bytes.Count(data, []byte("\n")) != 1 {
				t.Errorf("%s: want one event, got %s", path, data)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(logs) != 4 {
		t.Errorf("got %v: want the log and three before it", logs)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("a file that is no log was removed: %v", err)
	}
}

func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: "w", Contexts: map[string]*clientcmdapi.Context{"w": {Cluster: "w"}},
		Clusters: map[string]*clientcmdapi.Cluster{"w": {Server: url}},
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]auditing.Mode{"default": "", "blocking": auditing.Blocking} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testWebhook(t, mode)
		})
	}
}

func testWebhook(t *testing.T, mode auditing.Mode) {
	t.Helper()
	var mu sync.Mutex
	var got []string
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var list auditv1.EventList
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil || list.Kind != "EventList" {
			t.Errorf("%s: kind %q, %v", r.Method, list.Kind, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range list.Items {
			if list.Items[i].User.Username == "ada" {
				got = append(got, tell(&list.Items[i]))
			}
		}
	}))
	defer sink.Close()
	hook := auditing.Webhook{ConfigFile: kubeconfig(t, sink.URL), Mode: mode}
	// A busy machine may take the ten seconds that there are without it.
	client, stop := serve(t, "ada", hook.FlushFor(2*time.Minute))
	act(t, client)
	stop()
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(got) // batches are sent beside each other; a stop may make two
	if diff := cmp.Diff([]string{
		"Metadata ResponseComplete create default/configmaps/plan Created",
		"Metadata ResponseComplete create default/secrets/key Created",
		"Metadata ResponseComplete delete default/configmaps/absent Not Found",
	}, got); diff != "" {
		t.Errorf("what was held when the server stopped is to arrive (-want +got):\n%s", diff)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
	broken := func(string) ([]byte, error) { return nil, errors.New("the section is gone") }
	empty := func(string) ([]byte, error) { return nil, nil }
	cases := map[string]struct {
		part controlplane.Part
		want []string
	}{
		"level":         {auditing.Log{PolicyFile: file("a.yaml", head+"rules: [{level: Meta}]")}, []string{`part "auditing.Log": policy file`, "a.yaml", `rules[0].level: Unsupported value: "Meta"`}},
		"unknown field": {auditing.Log{PolicyFile: file("b.yaml", head+"rules: [{level: None, user: [ada]}]")}, []string{"b.yaml", `unknown field "rules[0].user"`}},
		"no rule":       {auditing.Log{PolicyFile: file("c.yaml", head)}, []string{"c.yaml", "rules: is empty"}},
		"other kind":    {auditing.Log{PolicyFile: file("d.yaml", "apiVersion: audit.k8s.io/v1\nkind: Event\n")}, []string{"d.yaml", "want apiVersion audit.k8s.io/v1, kind Policy"}},
		"no kind":       {auditing.Log{PolicyFile: file("e.yaml", "rules: []")}, []string{"e.yaml", "want apiVersion audit.k8s.io/v1, kind Policy"}},
		"no file":       {auditing.Webhook{PolicyFile: dir + "/f.yaml"}, []string{`part "auditing.Webhook"`, "f.yaml", "no such file"}},
		"two policies":  {auditing.Log{PolicyFile: "x", Policy: auditing.Default()}, []string{"set only one"}},
		"no section":    {auditing.Log{PolicyFile: "x", Read: broken}, []string{"policy file: the section is gone"}},
		"bad section":   {auditing.Log{PolicyFile: "x", Read: empty}, []string{`policy file "x": `, "want apiVersion audit.k8s.io/v1, kind Policy"}},
		"read what":     {auditing.Log{Read: empty}, []string{"field Read: is how PolicyFile is read, which is empty: set both"}},
		"Go":            {auditing.Log{Policy: &auditv1.Policy{OmitStages: []auditv1.Stage{"Never"}, Rules: auditing.Default().Rules}}, []string{"policy: omitStages[0]"}},
		"mode":          {auditing.Log{Mode: "async"}, []string{`mode "async": want batch, blocking or blocking-strict`}},
		"format":        {auditing.Log{Format: "xml"}, []string{`format "xml": want json or legacy`}},
		"backups":       {auditing.Log{MaxBackups: 3}, []string{"MaxSize"}},
		"negative":      {auditing.Log{MaxAge: -time.Hour}, []string{"none may be negative"}},
		"keep":          {auditing.Log{Keep: -time.Hour}, []string{"Keep is -1h0m0s"}},
		"strangers":     {auditing.Log{StrangerBytes: -2}, []string{"StrangerBytes -2: want 0 or more, or Unlimited"}},
		"event":         {auditing.Log{MaxEvent: 100}, []string{"MaxEvent is 100: want 4096 or more"}},
		"sent event":    {auditing.Webhook{MaxEvent: -1}, []string{"MaxEvent is -1: want 4096 or more"}},
		"chain":         {auditing.Log{Chain: true}, []string{"Chain: is in a file of format json only"}},
		"legacy chain":  {auditing.Log{Path: "x", Chain: true, Format: auditing.Legacy}, []string{"Chain: is in a file of format json only"}},
		"no kubeconfig": {auditing.Webhook{}, []string{"field ConfigFile: is empty"}},
		"kubeconfig":    {auditing.Webhook{ConfigFile: file("k", "{}")}, []string{`kubeconfig "`}},
		"batch":         {auditing.Webhook{ConfigFile: kubeconfig(t, "http://127.0.0.1:1"), BatchSize: -1}, []string{"BatchSize is -1"}},
		"nothing": {controlplane.PartFunc(func(p *controlplane.Plan) error {
			p.Audit("nothing", nil, nil)
			return nil
		}), []string{`audit "nothing": the back end or the policy is nil`}},
		"twice": {controlplane.Parts{auditing.Log{}, auditing.Log{}}, []string{`audit "log": part "auditing.Log" already has one with that name`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := builder(tc.part).Build()
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v, want %q in it", err, want)
				}
			}
		})
	}
}

func TestNoFile(t *testing.T) {
	t.Parallel()
	err := builder(auditing.Log{Path: t.TempDir()}).Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), `part "auditing.Log": audit "log": audit log: open`) {
		t.Errorf("got error %v: want the part and the file", err)
	}
}
