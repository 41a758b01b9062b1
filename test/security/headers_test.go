package security

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/authn"
)

// TestHeaders: what a header says of the caller counts for nothing, unless it
// is a credential. A front proxy is configured, so that its headers mean something.
func TestHeaders(t *testing.T) {
	t.Parallel()
	attack(t, serve(t, authn.Proxy{ClientCAFile: proxyAuthority(t)}), headerAttempts())
}

const whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

const review = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`

// headerAttempts: each set of headers is sent without credentials, which is 401,
// and with those of the reader, who stays who they are.
func headerAttempts() map[string]attempt {
	all := map[string]attempt{}
	for name, header := range map[string]map[string]string{
		"X-Remote-User":                {"X-Remote-User": "sailplane-admin", "X-Remote-Group": "system:masters", "X-Remote-Uid": "0", "X-Remote-Extra-A": "b"},
		"x_remote_user":                {"X_Remote_User": "sailplane-admin", "X_Remote_Group": "system:masters"},
		"X-Forwarded":                  {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "localhost", "X-Forwarded-Proto": "https", "X-Forwarded-User": "sailplane-admin", "X-Forwarded-Groups": "system:masters", "X-Real-Ip": "127.0.0.1", "Forwarded": "for=127.0.0.1"},
		"client certificate in header": {"X-Forwarded-Client-Cert": "Subject=\"CN=a,O=system:masters\"", "X-Ssl-Client-Verify": "SUCCESS", "X-Ssl-Client-S-Dn": "CN=a,O=system:masters", "Ssl-Client-Cert": "MII"},
		"X-Forwarded-Uri":              {"X-Original-Url": "/healthz", "X-Rewrite-Url": "/healthz", "X-Forwarded-Uri": "/healthz", "X-Forwarded-Prefix": "/healthz"},
		"other Host":                   {"Host": "loopback"},
		"cookies":                      {"Cookie": "token=token-of-chief; access_token=token-of-chief; authorization=Bearer token-of-chief"},
		"other token headers":          {"X-Auth-Token": "token-of-chief", "X-Access-Token": "token-of-chief", "Proxy-Authorization": "Bearer token-of-chief", "X-Authorization": "Bearer token-of-chief"},
		"audit and priority headers":   {"Audit-Id": "1\t2", "X-Kubernetes-Pf-Prioritylevel-Uid": "exempt", "User-Agent": "system:apiserver"},
	} {
		all[name] = attempt{reason: "headers say nothing of who calls", try: func(t *testing.T, w *world) {
			w.unauthorized(t, request{method: "GET", path: open, header: header})
			w.unauthorized(t, request{method: "POST", path: whoami, header: header, body: review})
			w.remains(t, request{as: "reader", header: header})
		}}
	}
	for name, value := range map[string]string{
		"Basic": "Basic c2FpbHBsYW5lLWFkbWluOmFkbWlu", "Digest": `Digest username="sailplane-admin"`, "Negotiate": "Negotiate YII",
		"no token": "Bearer ", "token without scheme": "token-of-chief", "two tokens in one": "Bearer wrong token-of-chief",
		"token in quotes": `Bearer "token-of-chief"`, "token with more": "Bearer token-of-chief,", "token as user": "Bearer chief",
		"pattern as token": "Bearer token-of-*", "token in capitals": "Bearer TOKEN-OF-CHIEF",
	} {
		all["Authorization: "+name] = attempt{reason: "it is not a token that anybody has", try: func(t *testing.T, w *world) {
			w.unauthorized(t, request{method: "GET", path: open, header: map[string]string{"Authorization": value}})
		}}
	}
	all["token in the query"] = attempt{reason: "paths are logged, so tokens are not read from them", try: func(t *testing.T, w *world) {
		for _, name := range []string{"access_token", "token", "bearer", "Authorization", "authorization"} {
			w.unauthorized(t, request{method: "GET", path: open + "?" + name + "=token-of-reader"})
		}
	}}
	all["two Authorization headers"] = attempt{reason: "the first counts, as for any proxy, and one of both is not enough", try: func(t *testing.T, w *world) {
		for _, pair := range [][2]string{{"wrong", "token-of-chief"}, {"token-of-stranger", "token-of-chief"}} {
			for _, a := range w.raw(t, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", open, pair[0], pair[1])) {
				if a.code != http.StatusUnauthorized && a.code != http.StatusForbidden {
					t.Errorf("%v: %d %s", pair, a.code, a.body)
				}
			}
		}
	}}
	all["proxy headers named as hop by hop"] = attempt{reason: "Connection must not take the Authorization header away", try: func(t *testing.T, w *world) {
		w.remains(t, request{as: "reader", header: map[string]string{"X-Remote-User": "chief", "X-Remote-Group": "system:masters", "Keep-Alive": "Authorization"}})
	}}
	all["websocket token nobody knows"] = attempt{reason: "a token in a subprotocol is a token as any other", try: func(t *testing.T, w *world) {
		w.unauthorized(t, request{method: "GET", path: open, header: map[string]string{
			"Sec-WebSocket-Protocol": "base64url.bearer.authorization.k8s.io.d3Jvbmc, v4.channel.k8s.io", "X-Upgrade": "websocket",
		}})
	}}
	return all
}

// remains tells whether the caller is who the token says, and no more.
func (w *world) remains(t *testing.T, r request) {
	t.Helper()
	r.method, r.path, r.body = "POST", whoami, review
	a := w.send(t, r)
	var got struct {
		Status struct {
			UserInfo struct {
				Username, UID string
				Groups        []string
				Extra         map[string][]string
			}
		}
	}
	a.into(t, &got)
	u := got.Status.UserInfo
	delete(u.Extra, "authentication.kubernetes.io/credential-id")
	if a.code != http.StatusCreated || u.Username != r.as || u.UID != "uid-of-"+r.as || len(u.Groups) != 1 || len(u.Extra) != 0 {
		t.Errorf("%s became: %d %+v", r.as, a.code, u)
	}
}

// dial opens a connection for HTTP/1.1 or HTTP/2.
func (w *world) dial(t *testing.T, protocol string) *tls.Conn {
	t.Helper()
	d := &tls.Dialer{Config: w.tls(nil, protocol)}
	c, err := d.DialContext(t.Context(), "tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	conn, ok := c.(*tls.Conn)
	if !ok {
		t.Fatalf("%T is no connection of TLS", c)
	}
	return conn
}

// raw writes bytes to a connection for HTTP/1.1, and returns all answers until
// the server closes it.
func (w *world) raw(t *testing.T, content string) []answer {
	t.Helper()
	c := w.dial(t, "http/1.1")
	defer c.Close()
	go func() { _, _ = c.Write([]byte(content)) }() // the server may close before it has all
	var all []answer
	for r := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			if isTimeout(err) {
				t.Errorf("the server keeps the connection open: %v", err)
			}
			return all
		}
		body, _ := readAll(resp)
		a := answer{code: resp.StatusCode, header: resp.Header, body: body}
		a.hasNoTreasure(t)
		all = append(all, a)
	}
}
