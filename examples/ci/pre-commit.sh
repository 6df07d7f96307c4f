#!/bin/sh
# Copy to .git/hooks/pre-commit of a clone of your manifests, or name it in .pre-commit-config.yaml:
#
#   repos:
#     - repo: local
#       hooks:
#         - {id: denv, name: denv validate, entry: ./pre-commit.sh, language: script, files: '\.ya?ml$', pass_filenames: false}
#
# What is about to be committed is checked as a whole, and not what lies around it.
set -eu
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
git checkout-index --all --prefix="$staged/"
cd "$staged"
denv validate .
