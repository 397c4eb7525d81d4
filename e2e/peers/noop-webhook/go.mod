module github.com/kubectl-bundle/kubectl-bundle/e2e/peers/noop-webhook

go 1.26
