package aggregator

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// ambiguous says why a path could be read in two ways, empty if it cannot: the proxy
// sends the decoded path, which servers clean, or cut where this one does not.
func ambiguous(r *http.Request) string {
	escaped, path := strings.ToLower(r.URL.EscapedPath()), r.URL.Path
	switch {
	case strings.Contains(escaped, "%2f"), strings.Contains(escaped, "%5c"), strings.Contains(path, `\`):
		return "has an encoded slash or a backslash"
	case strings.Contains(path, ";"):
		return "has a semicolon"
	case !utf8.ValidString(path), strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return "has a control character, or is not UTF-8"
	}
	path = strings.TrimSuffix(path, "/")[1:]
	left := 1 + strings.Count(path, "/")
	below := 0 // a sub-resource, and what is below it, such as a URL to proxy to
	if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest {
		below = max(0, len(info.Parts)-2)
	}
	for s := range strings.SplitSeq(path, "/") {
		if s == "." || s == ".." || s == "" && left > below {
			return fmt.Sprintf("has a segment %q", s)
		}
		left--
	}
	return ""
}

// hopHeaders is how many headers a hop adds, about.
const hopHeaders = 8

// anonymous is a copy of headers without credentials, and without any spelling of those that
// say who the user is.
func anonymous(header http.Header) http.Header {
	kept := make(http.Header, len(header)+hopHeaders)
	for name, values := range header {
		if !identifies(name) {
			kept[name] = slices.Clip(values) // who adds one copies them
		}
	}
	const protocols = "Sec-Websocket-Protocol"
	if all := kept[protocols]; len(all) > 0 {
		var others []string
		for p := range strings.SplitSeq(strings.Join(all, ","), ",") {
			if p = strings.TrimSpace(p); p != "" && !strings.HasPrefix(p, "base64url.bearer.authorization.") {
				others = append(others, p)
			}
		}
		kept.Del(protocols)
		if len(others) > 0 {
			kept.Set(protocols, strings.Join(others, ", "))
		}
	}
	return kept
}

// identifies tells whether a header may say who the client is. Servers that hand
// headers to programs as variables take "_" and "-" for the same.
func identifies(header string) bool {
	name := strings.Map(func(c rune) rune {
		switch {
		case 'A' <= c && c <= 'Z':
			return c + 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c
		}
		return '-'
	}, header)
	switch name {
	case "authorization", "proxy-authorization", "cookie", "cookie2", "x-auth-token", "x-access-token", "x-api-key",
		"client-cert", "client-cert-chain", "x-client-cert", "x-forwarded-client-cert", "x-forwarded-access-token",
		"x-forwarded-user", "x-forwarded-groups", "x-forwarded-email", "x-forwarded-preferred-username":
		return true
	}
	for _, prefix := range []string{"x-remote-", "impersonate-", "x-ssl-client", "ssl-client"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
