package controlplane

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/sailplane-dev/sailplane/pkg/internal/store"
)

// inquiryTimeout bounds how long it takes to ask about one request.
const inquiryTimeout = 10 * time.Second

// inquiry asks about a request that runs what the filters of the chain asked when it came.
type inquiry struct {
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
	lists         *lists
	consoles      request.LongRunningRequestCheck
	impersonation http.Handler // gives an impersonated the user
}

func newInquiry(c *chain, config *genericapiserver.Config) *inquiry {
	found := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if to, ok := r.Context().Value(impersonatedKey{}).(*impersonated); ok {
			to.user, _ = request.UserFrom(r.Context())
		}
	})
	return &inquiry{
		authenticator: config.Authentication.Authenticator, authorizer: c.lists.authorizer(config.Authorization.Authorizer),
		lists: c.lists, consoles: c.consoles, impersonation: impersonating(found, config),
	}
}

// ask returns why a request is no longer allowed, with status 401 or 403; nil if it is, or
// if nobody can tell now. The login, which may cost, is asked for only on demand.
func (i *inquiry) ask(ctx context.Context, one *openRequest, login bool) *apierrors.StatusError {
	ctx, cancel := context.WithTimeout(ctx, inquiryTimeout)
	defer cancel()
	info, _ := request.RequestInfoFrom(one.as.Context())
	ctx = request.WithRequestInfo(ctx, info)
	who, _ := request.UserFrom(one.as.Context())
	from := one.login
	if login {
		now, err := i.authenticate(ctx, one)
		if err != nil || now == nil {
			return err
		}
		if !sameUser(now, from) {
			from, who = now, now
		}
	}
	if one.impersonates() {
		now, err := i.impersonate(request.WithUser(ctx, from), one)
		if err != nil || now == nil {
			return err
		}
		who = now
	}
	return i.authorize(request.WithUser(ctx, who), one)
}

// copyOf returns a request with the headers that one came with.
func copyOf(ctx context.Context, one *openRequest) *http.Request {
	r := one.as.WithContext(ctx)
	r.Header, r.Body = maps.Clone(one.header), http.NoBody
	return r
}

// authenticate returns who the credentials are of now; nil if nobody can tell.
func (i *inquiry) authenticate(ctx context.Context, one *openRequest) (user.Info, *apierrors.StatusError) {
	response, ok, err := i.authenticator.AuthenticateRequest(copyOf(ctx, one))
	switch {
	case err != nil && (ctx.Err() != nil || isOutage(err)):
		return nil, nil //nolint:nilerr // nobody can tell now
	case err != nil || !ok:
		return nil, apierrors.NewUnauthorized("the credentials of the request are no longer valid")
	}
	return response.User, nil
}

// isOutage tells whether an error is of a connection, and not of what was asked.
func isOutage(err error) bool {
	if all, ok := err.(utilerrors.Aggregate); ok { //nolint:errorlint // it is not wrapped
		for _, e := range all.Errors() {
			if isOutage(e) {
				return true
			}
		}
		return false
	}
	connection := net.Error(nil)
	return errors.As(err, &connection) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

type impersonatedKey struct{}

// impersonated is what the filter of impersonation found.
type impersonated struct{ user user.Info }

// impersonate returns for whom a request is made, if the user may still impersonate.
func (i *inquiry) impersonate(ctx context.Context, one *openRequest) (user.Info, *apierrors.StatusError) {
	found, answer := &impersonated{}, &codeOnly{header: http.Header{}}
	i.impersonation.ServeHTTP(answer, copyOf(context.WithValue(ctx, impersonatedKey{}, found), one))
	if found.user == nil && answer.code == http.StatusForbidden {
		return nil, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("the user may no longer impersonate the other one"))
	}
	return found.user, nil
}

// authorize asks whether a user may make the request, of which a filter for lists may let
// through as much as before.
func (i *inquiry) authorize(ctx context.Context, one *openRequest) *apierrors.StatusError {
	attributes, err := genericapifilters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return nil //nolint:nilerr // nobody can tell
	}
	before, now := store.FilterFrom(one.as.Context()), (*store.Filter)(nil)
	if before != nil {
		now = &store.Filter{Resource: before.Resource}
		ctx = store.WithFilter(ctx, now)
	}
	decision, reason, err := i.authorizer.Authorize(ctx, attributes)
	if err != nil {
		return nil //nolint:nilerr // nobody can tell now
	}
	if decision != authorizer.DecisionAllow || now.Filters() && !before.Filters() {
		return responsewriters.ForbiddenStatusError(attributes, reason)
	}
	return i.mayCreate(ctx, one, attributes)
}

// toCreate is a request with the verb create.
type toCreate struct{ authorizer.Attributes }

// GetVerb implements authorizer.Attributes.
func (toCreate) GetVerb() string { return "create" }

// mayCreate asks for the verb create, too, about a console that was opened with another one: over
// a WebSocket, which begins with a GET.
func (i *inquiry) mayCreate(ctx context.Context, one *openRequest, attributes authorizer.Attributes) *apierrors.StatusError {
	info, found := request.RequestInfoFrom(ctx)
	if !found || attributes.GetVerb() == "create" || !i.consoles(one.as, info) {
		return nil
	}
	attributes = toCreate{attributes}
	decision, reason, err := i.authorizer.Authorize(ctx, attributes)
	if err != nil || decision == authorizer.DecisionAllow {
		return nil //nolint:nilerr // nobody can tell now
	}
	return responsewriters.ForbiddenStatusError(attributes, reason)
}

// codeOnly is an answer that nobody reads.
type codeOnly struct {
	header http.Header
	code   int
}

// Header implements http.ResponseWriter.
func (c *codeOnly) Header() http.Header { return c.header }

// Write implements http.ResponseWriter.
func (c *codeOnly) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (c *codeOnly) WriteHeader(code int) { c.code = code }

// writeRefusal ends a watch with an ERROR event, as the handler of watches writes events.
func writeRefusal(w http.ResponseWriter, refused *apierrors.StatusError) {
	media, _, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
	if err != nil {
		return
	}
	info, ok := streamOf(media)
	if !ok {
		return
	}
	v1 := schema.GroupVersion{Version: "v1"}
	codecs := unversionedCodecs()
	status, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, v1), &refused.ErrStatus)
	if err != nil {
		return
	}
	event := &metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Raw: status}}
	content, err := runtime.Encode(codecs.EncoderForVersion(info.StreamSerializer.Serializer, v1), event)
	if err != nil {
		return
	}
	out := io.Writer(w)
	if w.Header().Get("Content-Encoding") == "gzip" { // each event is compressed by itself
		member := gzip.NewWriter(w)
		defer member.Close()
		out = member
	}
	// The client may be gone.
	_, _ = info.StreamSerializer.Framer.NewFrameWriter(out).Write(content)
}

// streamOf returns how events of a media type are written.
func streamOf(media string) (runtime.SerializerInfo, bool) {
	if media == runtime.ContentTypeCBORSequence {
		s := runtime.NewScheme()
		return cbor.NewSerializerInfo(s, s), true
	}
	info, ok := runtime.SerializerInfoForMediaType(unversionedCodecs().SupportedMediaTypes(), media)
	return info, ok && info.StreamSerializer != nil
}
