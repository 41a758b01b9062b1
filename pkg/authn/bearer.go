package authn

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
)

// websocketToken begins the subprotocol in which a browser sends its token, as it
// cannot set the Authorization header of a websocket.
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/authentication/request/websocket/protocol.go#L31
const websocketToken = "base64url.bearer.authorization.k8s.io."

// bearer authenticates the token of a request. An unknown token is an error and
// so 401, unless another authenticator knows the caller.
func bearer(tokens authenticator.Token) authenticator.Request {
	return union.New(bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
}

// hasCredentials tells whether a request has credentials of any kind.
func hasCredentials(req *http.Request) bool {
	if len(req.Header.Values("Authorization")) > 0 {
		return true
	}
	if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
		return true
	}
	for _, protocols := range req.Header.Values("Sec-WebSocket-Protocol") {
		if strings.Contains(protocols, websocketToken) {
			return true
		}
	}
	return false
}

// current is the token authenticator in use, which changes while a server runs.
// It knows no token before the first is set.
type current[T authenticator.Token] struct{ atomic.Pointer[T] }

// AuthenticateToken implements authenticator.Token.
func (c *current[T]) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if t := c.Load(); t != nil {
		return (*t).AuthenticateToken(ctx, token)
	}
	return nil, false, nil
}
